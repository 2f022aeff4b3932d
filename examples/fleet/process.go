package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// A process is a replica as its parent sees it.
type process struct {
	name string
	cmd  *exec.Cmd
	// stdin tells the replica to end when it is closed, also by the parent's own end.
	stdin io.Closer
	ended chan struct{} // closed when it has ended and its marks have been read
	err   error         // why it ended; read after ended
}

// startProcess starts a replica, whose marks go into the ledger.
func startProcess(o orders, marks *ledger, stderr io.Writer) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), replicaEnv+"="+string(text))
	cmd.Stderr = stderr
	dieWithParent(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := &process{name: o.Name, cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel takes the end of the thread that started a child for that of its
		// parent. So this thread stays until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = marks.read(o.Name, stdout)
		if err != nil {
			p.kill()
		}
		p.err = errors.Join(err, cmd.Wait())
		close(p.ended)
	}()
	return p, <-started
}

// kill ends the replica at once.
func (p *process) kill() { _ = p.cmd.Process.Kill() } // it has ended already, or will

// end has the replica finish, and waits for it.
func (p *process) end(ctx context.Context) error {
	_ = p.stdin.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.kill()
		<-p.ended
		return fmt.Errorf("%s did not end in time", p.name)
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.name, p.err)
	}
	return nil
}

// hasEnded reports whether it has, of itself or by force.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
