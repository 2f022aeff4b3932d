//go:build !unix

package main

import (
	"errors"
	"os"
	"time"
)

var errNoPause = errors.New("fleet pauses processes, which this system cannot do: run it on Linux, macOS or a BSD, or in WSL")

func canPause() error { return errNoPause }

func pause(*os.Process) error { return errNoPause }

func goOn(*os.Process) error { return errNoPause }

// now is not reached, since main ends before.
func now() int64 { return time.Now().UnixNano() }
