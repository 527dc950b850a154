package experiment

import (
	"os/exec"
	"syscall"
)

// endWithParent has a child killed when this process dies, however it does.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
