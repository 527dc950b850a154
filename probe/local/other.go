//go:build !linux

package local

import (
	"errors"
	"runtime"
)

var errLinuxOnly = errors.New("probes on the instance need Linux")

func openThread() (thread, error)       { return nil, errLinuxOnly }
func openDisk(*Options) (prober, error) { return nil, errLinuxOnly }
func processors() int                   { return runtime.NumCPU() }
