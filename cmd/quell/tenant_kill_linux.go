package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// endWithThis makes the kernel kill a program when this process ends in any way. The kernel watches the thread that starts the program, so
// this goroutine keeps its thread from now on.
func endWithThis(cmd *exec.Cmd) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
