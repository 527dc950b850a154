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
	"github.com/quellhq/quell/scaler"
)

// lingering is a scaler whose instances outlive the controller for a while.
type lingering interface {
	// Lingering is how long the instances outlive the controller; 0: for ever.
	Lingering() time.Duration
	// EndInstances stops the instances if no controller has managed them after the time since.
	EndInstances(ctx context.Context, s scaler.Env, since time.Time) error
}

// startLingerer starts the process that stops the instances when no controller has run for scaler.linger. It holds one end of a
// pipe whose other end is in this process, so it notices in any case that this process has ended. The instances need not do
// anything.
func startLingerer(file *config.File, path string, log *slog.Logger, stop *cleanups) error {
	if s, ok := file.Scaler.Settings.(lingering); !ok || s.Lingering() == 0 {
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ctrl-C is only for the controller
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

// Linger waits until the controller that started it has ended. Unless another one starts within scaler.linger, it stops the
// instances.
func Linger(ctx context.Context, path string, log *slog.Logger) error {
	file, err := Drivers().Load(path)
	if err != nil {
		return err
	}
	instances, ok := file.Scaler.Settings.(lingering)
	if !ok {
		return nil // the scaler's configuration has changed since
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
	case <-time.After(instances.Lingering()):
	}
	return instances.EndInstances(ctx, scaler.Env{Data: file.Data, Logger: log}, since)
}
