package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestOrphans kills a fleet without a word while one of its replicas is paused. None may
// outlive it: the standard error, which all of them have, must end.
func TestOrphans(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	fleet := exec.Command(self)
	fleet.Env = append(os.Environ(), fleetEnv+"=-keys 100 -ttl 2s -duration 1s", "TMPDIR="+t.TempDir())
	fleet.Stderr = w
	must(t, fleet.Start())
	must(t, w.Close())
	defer func() { _ = fleet.Wait() }() // killed
	defer func() { _ = fleet.Process.Kill() }()

	paused := false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		t.Log(lines.Text())
		if strings.Contains(lines.Text(), "r2 is paused") {
			paused = true
			must(t, fleet.Process.Kill())
			must(t, r.SetReadDeadline(time.Now().Add(time.Minute))) // if some do
		}
	}
	must(t, lines.Err())
	if !paused {
		t.Error("the fleet ended before it paused a replica")
	}
}
