package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/train"
)

// playerVariable is the environment variable with the descriptor of the player's socket to the lab's owner. If it is set, this
// process is the player.
const playerVariable = "QUELL_LAB_FD"

// player is the connection of a process inside a lab to the lab's owner.
type player struct {
	experiment.Machines
	gone <-chan struct{}
}

// insideLab returns nil if no owner started this process.
func insideLab() *player {
	fd, err := strconv.Atoi(os.Getenv(playerVariable))
	if err != nil {
		return nil
	}
	end := os.NewFile(uintptr(fd), "owner")
	if end == nil {
		return nil
	}
	defer end.Close()
	machines, gone, err := experiment.ConnectMachines(end)
	if err != nil {
		return nil
	}
	os.Unsetenv(playerVariable) // the player's children must not use it
	return &player{machines, gone}
}

var errOwnerGone = errors.New("the process that owns the lab is gone: `quell lab clean` removes what is left")

// with returns a context that ends with ctx, or when the owner has ended.
func (p *player) with(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.gone:
			cancel(errOwnerGone)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// playerWait is how long an interrupted player may take to end before it is killed.
const playerWait = 30 * time.Second

// ownLab makes a lab, runs the same command line again in its clients' namespace, and removes the lab. Closing the
// terminal ends it like ctrl-C, unless it was started with nohup.
func ownLab(ctx context.Context, o kernel.Options, errs io.Writer) (err error) {
	if !signal.Ignored(syscall.SIGHUP) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	lab, err := kernel.New(o)
	if err != nil {
		return err
	}
	defer func() { err = andRemoved(err, lab.Close()) }()
	place, err := lab.Place("", kernel.Client)
	if err != nil {
		return err
	}
	mine, theirs, err := experiment.MachinesPair()
	if err != nil {
		return err
	}
	defer mine.Close()
	cmd, err := playerCommand(theirs)
	if err != nil {
		return err
	}
	if err := place.Start(cmd); err != nil {
		return errors.Join(fmt.Errorf("starting the player: %w", err), theirs.Close())
	}
	theirs.Close()
	go func() { _ = experiment.ServeMachines(mine, labMachines{lab}) }()
	return awaitPlayer(ctx, cmd, errs)
}

// playerCommand runs this process's command line again, in its own process group: the owner gets ctrl-C and passes it on.
func playerCommand(end *os.File) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{end}
	cmd.Env = append(os.Environ(), playerVariable+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, nil
}

func awaitPlayer(ctx context.Context, cmd *exec.Cmd, errs io.Writer) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return playerEnded(err)
	case <-ctx.Done():
	}
	fmt.Fprintln(errs, "quell: interrupted: stopping the experiment and removing the lab")
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		return playerEnded(err)
	case <-time.After(playerWait):
		_ = cmd.Process.Kill()
		return errors.Join(errors.New("the experiment did not stop and was killed"), <-ended)
	}
}

// playerEnded turns a player's exit status into this process's. The player has already printed its errors.
func playerEnded(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return statusError(exit.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("the experiment's process ended: %w", err)
	}
	return nil
}

// andRemoved joins the errors of the player and of removing its lab. If the player's error is only an exit status, it returns only the
// other error, which the exit status would hide.
func andRemoved(player, removing error) error {
	if removing == nil {
		return player
	}
	removing = fmt.Errorf("removing the lab: %w", removing)
	if errors.As(player, new(statusError)) {
		return removing
	}
	return errors.Join(player, removing)
}

// statusError is an error with which this process ends with that status and without a message.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// labMachines gives a player access to the lab's machines.
type labMachines struct{ lab *kernel.Lab }

func (l labMachines) machine(host string) (*kernel.Machine, error) {
	if m := l.lab.Machine(host); m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("the lab has no host %s", host)
}

// Interfere implements experiment.Machines.
func (l labMachines) Interfere(host string, use map[quell.Resource]float64) error {
	m, err := l.machine(host)
	if err != nil {
		return err
	}
	return m.Interfere(use)
}

// Work implements experiment.Machines.
func (l labMachines) Work(host string, use map[quell.Resource]float64) error {
	m, err := l.machine(host)
	if err != nil {
		return err
	}
	return m.Work(use)
}

// Run implements experiment.Machines.
func (l labMachines) Run(host string, strengths map[kernel.Program]float64) error {
	m, err := l.machine(host)
	if err != nil {
		return err
	}
	return m.Run(strengths)
}

// Carried implements experiment.Machines.
func (l labMachines) Carried(host string, r quell.Resource) (c train.Carried, err error) {
	m, err := l.machine(host)
	if err != nil {
		return c, err
	}
	switch r {
	case quell.Network:
		c.Own, c.Interfering, err = m.Carried()
	case quell.CPU:
		c.Own, c.Interfering, err = m.CPUCarried()
	case quell.Disk:
		c.Own, c.Interfering, err = m.DiskCarried()
	case quell.Memory:
		c.Own, c.Interfering, err = m.MemoryCarried()
	default:
		err = fmt.Errorf("what a machine carried of its %s is not counted", r)
	}
	return c, err
}
