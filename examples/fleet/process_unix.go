//go:build unix

package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// canPause is nil where a process can be paused.
func canPause() error { return nil }

// pause stops a child in its tracks, and returns when it stands.
func pause(child *os.Process) error {
	if err := child.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(child.Pid, &status, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("waiting for it to stand: %w", err)
		case !status.Stopped():
			return fmt.Errorf("it ended instead: %v", status)
		default:
			return nil
		}
	}
}

// goOn lets a paused child go on.
func goOn(child *os.Process) error { return child.Signal(unix.SIGCONT) }

// now is the time on the one clock that all processes of the machine share.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every unix has it
	}
	return t.Nano()
}
