package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// server is a program in a place that listens on a port. When it is stopped, it finishes open requests. It ends with this process.
type server struct {
	run    *process
	finish syscall.Signal // ends the program after its open requests
	force  syscall.Signal // ends the program at once
}

// start launches the program and returns when it listens.
func (s *server) start(ctx context.Context, launch func() (*process, error), port int) error {
	return s.startUntil(ctx, launch, func(run *process) bool { return listens(run.cmd.Process.Pid, port) })
}

// startUntil launches the program and returns when it is ready.
func (s *server) startUntil(ctx context.Context, launch func() (*process, error), ready func(*process) bool) error {
	run, err := launch()
	if err != nil {
		return err
	}
	if err := run.until(ctx, func() bool { return ready(run) }); err != nil {
		return errors.Join(err, run.stop(s.force, patience))
	}
	s.run = run
	return nil
}

// Stop lets open requests finish until ctx ends, and then ends the server. If the server does not run, that is no error.
func (s *server) Stop(ctx context.Context) error {
	if s.run == nil {
		return nil
	}
	s.run.signal(s.finish)
	select {
	case <-s.run.done:
		return nil
	case <-ctx.Done():
		return s.run.stop(s.force, patience)
	}
}

// PID is the process's number. It is 0 before Start.
func (s *server) PID() int {
	if s.run == nil {
		return 0
	}
	return s.run.cmd.Process.Pid
}

// Done is closed when the server has ended, whether it was stopped or not. It is nil before Start.
func (s *server) Done() <-chan struct{} {
	if s.run == nil {
		return nil
	}
	return s.run.done
}

// Failed returns how the server ended, with the end of its output. It is nil while it runs.
func (s *server) Failed() error {
	if s.run == nil {
		return nil
	}
	return s.run.failed()
}

// Worker is the service of dynamic work (see Work) as a process in a place.
type Worker struct {
	Place   Place
	Dir     string // for the log and the file that disk operations read; each server needs its own
	Port    int    // 0 means 80
	Program string // path of the quell binary, whose command `lab work` runs
	Disk    bool   // accept requests for disk operations
	Memory  bool   // accept requests for memory
	Workers int    // threads that send the frames of streams; 0: no streams
	Wait    time.Duration
	Number  string // file with the number of these threads instead of Workers, which is read again after SIGHUP
	server
}

// diskFile is the size of the file that disk operations read.
const diskFile = 16 << 20

// Start starts the process and returns when it listens.
func (w *Worker) Start(ctx context.Context) (err error) {
	if w.run != nil {
		return errors.New("this service has been started already")
	}
	if w.Port == 0 {
		w.Port = 80
	}
	if w.Dir, err = filepath.Abs(w.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(w.Dir, 0o755); err != nil {
		return err
	}
	args := []string{"lab", "work", "--listen", fmt.Sprintf("%s:%d", w.Place.address, w.Port)}
	if w.Disk {
		file := filepath.Join(w.Dir, "disk.data")
		if err := fill(file, diskFile); err != nil {
			return fmt.Errorf("writing the file that disk operations read: %w", err)
		}
		args = append(args, "--disk", file)
	}
	if w.Memory {
		args = append(args, "--memory")
	}
	switch {
	case w.Number != "":
		args = append(args, "--workers-file", w.Number, "--wait", w.Wait.String())
	case w.Workers > 0:
		args = append(args, "--workers", strconv.Itoa(w.Workers), "--wait", w.Wait.String())
	}
	w.finish, w.force = syscall.SIGTERM, syscall.SIGKILL
	return w.start(ctx, func() (*process, error) {
		return launch(w.Place, w.Dir, "work", w.finish, w.Program, args...)
	}, w.Port)
}
