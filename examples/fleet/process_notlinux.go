//go:build !linux

package main

import (
	"os"
	"os/exec"
)

// dieWithParent does nothing here: a child notices by its standard input that its parent
// has gone.
func dieWithParent(*exec.Cmd) {}

// peakMemory is not known: systems count it in different units.
func peakMemory(*os.ProcessState) string { return "unknown" }
