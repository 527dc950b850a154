package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/setting"
)

// groupName is what a group's name must look like.
var groupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

// tenantsGroup is the control group that holds the programs of quell run.
const tenantsGroup = "/quell"

func runCommand() *cobra.Command {
	var name, socket string
	cmd := &cobra.Command{
		Use:   "run [--name NAME] [--progress SOCKET] -- PROGRAM [ARGUMENT...]",
		Short: "Run a program in a control group of its own, " + tenantsGroup + "/NAME, and report its progress to this machine's agent",
		Args:  someNamed("a program"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name == "" {
				name = fmt.Sprintf("%s-%d", filepath.Base(args[0]), os.Getpid())
			}
			if !groupName.MatchString(name) {
				return userErrorf("--name %s: a group's name is at most 200 letters, digits, '.', '_' and '-', and begins with a letter or a digit",
					setting.Shorten(name))
			}
			t := &tenantRun{args: args, name: name, group: tenantsGroup + "/" + name, socket: socket, marks: marksOf(),
				in: cmd.InOrStdin(), out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr()}
			status, err := t.run()
			if err == nil && status != exitDone {
				err = statusError(status)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the group (default: name of the program and a number)")
	cmd.Flags().StringVar(&socket, "progress", "/run/quell/progress",
		"socket of agent.policy.progress; while nobody listens there, nothing is reported")
	return cmd
}

// tenantRun is one program in a group of its own.
type tenantRun struct {
	args      []string
	name      string
	group     string
	socket    string
	marks     tenantMarks
	in        io.Reader
	out, errs io.Writer
}

// run runs the program, and returns its exit status: 128 and the signal's number if a signal ended it. An error of a program that could not
// be started has a status, too (notStarted). Processes that the program left are ended, and the group is removed.
func (t *tenantRun) run() (status int, err error) {
	path, err := exec.LookPath(t.args[0])
	if err != nil {
		return 0, notStarted(err)
	}
	if err := t.marks.clear(); err != nil {
		fmt.Fprintln(t.errs, "quell:", err) // this program can run all the same
	}
	release, err := t.marks.take(t.name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, release()) }()
	made, err := cgroup.Make(t.group)
	if err != nil {
		return 0, fmt.Errorf("%w (quell run needs root, or delegated control groups)", err)
	}
	defer func() { err = errors.Join(err, clearOut(made)) }()
	cmd := exec.Command(path, t.args[1:]...)
	cmd.Args[0] = t.args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = t.in, t.out, t.errs
	endWithThis(cmd)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passed()...)
	defer signal.Stop(signals)
	if err := startIn(made, cmd); err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go t.report(ctx)
	go pass(ctx, signals, cmd.Process)
	if err := ended(cmd.Wait()); err != nil {
		return 0, err
	}
	if how, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && how.Signaled() {
		return 128 + int(how.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// ended drops the error that only says how a program ended.
func ended(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// startIn starts a program in a group, which this process enters for that moment.
func startIn(made *cgroup.Made, cmd *exec.Cmd) error {
	err := made.Enter()
	if err == nil {
		err = notStarted(cmd.Start())
	}
	started := err == nil
	if err = errors.Join(err, made.Leave()); err != nil && started {
		err = errors.Join(err, cmd.Process.Kill(), ended(cmd.Wait()))
	}
	return err
}

// notStarted gives the error of a program that could not be started the exit status that shells and env have for it.
func notStarted(err error) error {
	const notExecutable, notFound = 126, 127
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &exitError{err, notFound}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR):
		return &exitError{err, notExecutable}
	}
	return err
}

// passed lists the signals that are handed on. A terminal sends its own ones to the program, too.
func passed() []os.Signal {
	list := []os.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		list = append(list, syscall.SIGINT, syscall.SIGQUIT)
	}
	return list
}

// pass hands signals on until the program has ended.
func pass(ctx context.Context, signals <-chan os.Signal, to *os.Process) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			_ = to.Signal(s) // it may have ended
		}
	}
}

// report tells the agent regularly how many milliseconds of processor time the program used.
func (t *tenantRun) report(ctx context.Context) {
	const period = 250 * time.Millisecond
	groups, err := sensor.NewGroups(os.DirFS("/"), []sensor.Group{{Path: t.group}})
	if err != nil {
		return // the group's name was checked
	}
	for next := true; next; next = tick.Sleep(ctx, period) {
		s, _ := groups.Sample(time.Now()) // what cannot be read is not reported
		if len(s.Instances) == 0 || s.Instances[0].Observation == nil {
			continue
		}
		t.tell(1000 * s.Instances[0].Observation.Sched.RunS)
	}
}

// tell sends one message. Nobody may listen.
func (t *tenantRun) tell(milliseconds float64) {
	c, err := net.Dial("unixgram", t.socket)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(c, "progress %.3f %s", milliseconds, t.group) // a report that is lost is missing from one period only
}

// clearOut ends the processes that are left in a group, and removes it.
func clearOut(made *cgroup.Made) error {
	const polite, patience = time.Second, 10 * time.Second
	begin := time.Now()
	for sig := syscall.SIGTERM; time.Since(begin) < patience; time.Sleep(5 * time.Millisecond) {
		left, err := made.Processes()
		if err != nil {
			return err
		}
		if len(left) == 0 {
			break
		}
		if time.Since(begin) > polite {
			sig = syscall.SIGKILL
		}
		for _, pid := range left {
			if pid != os.Getpid() {
				_ = syscall.Kill(pid, sig) // it may have ended
			}
		}
	}
	return made.Remove()
}
