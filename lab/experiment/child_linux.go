package experiment

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill a child when this process ends, for whatever reason.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
