//go:build !linux

package experiment

import "os/exec"

// endWithParent does nothing: only labs need it, and they need Linux.
func endWithParent(*exec.Cmd) {}
