package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child, paused or not, when the thread that starts
// it ends.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// peakMemory returns the largest resident size that a process had.
func peakMemory(ended *os.ProcessState) string {
	return fmt.Sprintf("%.0f MB", float64(ended.SysUsage().(*syscall.Rusage).Maxrss)*1024/1e6)
}
