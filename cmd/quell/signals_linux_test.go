package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A signal ends commands that wait for their input.
func TestSignalsEndReadingCommands(t *testing.T) {
	for _, args := range [][]string{
		{"explain", "a", "--status"},
		{"plan", "--config", filepath.Join("..", "..", "examples", "golden", "lr.yaml")},
	} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("quell", append(args, pipe)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // it may have ended
		writer, err := openWhenRead(pipe)
		err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
		kill.Stop()
		_ = writer.Close() // nothing was written
		how, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !how.Signaled() || how.Signal() != syscall.SIGTERM {
			t.Errorf("%v ended with %v", args, err)
		}
	}
}

// Long-running processes go on when nobody reads their log any more. This configuration ends them after the first line of the log.
func TestProcessesOutliveTheirLog(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	for _, process := range []string{"controller", "balancer", "agent"} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("quell", process, "--config", missing)
		cmd.Stderr = write
		err = errors.Join(read.Close(), cmd.Start(), write.Close())
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the status is checked
		if cmd.ProcessState.ExitCode() != exitUsage {
			t.Errorf("%s: %v, want exit status %d", process, cmd.ProcessState, exitUsage)
		}
	}
}

// openWhenRead opens a pipe once somebody reads it.
func openWhenRead(path string) (*os.File, error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		file, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil || time.Now().After(deadline) {
			return file, err
		}
	}
}
