package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/scaler/process"
)

// startLingerer starts the process that ends the instances once no controller has run for scaler.linger. It holds one end of a pipe
// whose other end is this process's, so it notices however this process ends. It needs no help from the instances.
func startLingerer(file *config.File, path string, log *slog.Logger, stop *cleanups) error {
	if file.Scaler.Kind != config.ProcessScaler || file.Scaler.Linger == 0 {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer read.Close()
	cmd := exec.Command(program, "linger", "--config", path)
	lifeline.Give(cmd, read)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ctrl-C is for the controller
	if said, err := os.OpenFile(filepath.Join(file.Data, "instances", "linger.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644); err == nil {
		defer said.Close()
		cmd.Stdout, cmd.Stderr = said, said
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("starting the process that ends the instances: %w", err), write.Close())
	}
	go func() {
		if err := cmd.Wait(); err != nil {
			log.Warn("nobody is there to end the instances after this controller", "error", err)
		}
	}()
	stop.add(write.Close)
	return nil
}

// Linger waits until the controller that started it is gone and, unless another one comes within scaler.linger, ends the instances.
func Linger(ctx context.Context, path string, log *slog.Logger) error {
	file, err := Drivers().Load(path)
	if err != nil {
		return err
	}
	pipe, err := lifeline.Inherited()
	if err != nil {
		return err
	}
	if pipe == nil {
		return errors.New("this command is run by quell controller")
	}
	select {
	case <-ctx.Done():
		return nil
	case <-lifeline.Broken(pipe):
	}
	since := time.Now()
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(file.Scaler.Linger):
	}
	return endInstances(ctx, file, since, log)
}

// endInstances ends them if no controller has looked after them since then: one that has, has somebody of its own to end them.
func endInstances(ctx context.Context, file *config.File, since time.Time, log *slog.Logger) error {
	const settle = 500 * time.Millisecond // what the controller wrote last may be a moment younger than its end
	list, err := os.Stat(filepath.Join(processOptions(file, log).Dir, "instances.json"))
	if errors.Is(err, os.ErrNotExist) || err == nil && list.ModTime().After(since.Add(settle)) {
		return nil
	}
	if err != nil {
		return err
	}
	driver, err := process.New(processOptions(file, log))
	if errors.Is(err, process.ErrInUse) {
		return nil // a controller is back
	}
	if err != nil {
		return err
	}
	log.Info("the instances end: no controller has come back", "after", file.Scaler.Linger)
	ctx, cancel := context.WithTimeout(ctx, stopWait+file.Scaler.Drain)
	defer cancel()
	return driver.Close(ctx, false)
}

// processOptions are those of the process scaler, without a lifeline.
func processOptions(file *config.File, log *slog.Logger) process.Options {
	s := file.Scaler
	return process.Options{
		Command: s.Command, Address: s.Address, ProbeAddress: s.ProbeAddress, Slots: s.Slots, Dir: filepath.Join(file.Data, "instances"), Ports: process.PortRange(s.Ports),
		Ready: process.Ready{Path: s.Ready.Path, Timeout: s.Ready.Timeout}, Drain: s.Drain, Logger: log,
	}
}
