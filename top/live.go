package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
)

// Controller is the running controller of a service. All texts that it returns must be printable.
type Controller interface {
	Status(ctx context.Context) (controller.Status, error)
	// Command sends a command and returns what was done.
	Command(ctx context.Context, cmd bus.Command) (string, error)
}

// Service is a service that is shown.
type Service struct {
	Name       string
	Controller Controller
	// Past returns samples from before the view began; nil: there are none.
	Past func(ctx context.Context, now *controller.Status) []Sample
}

// Options configure the view. All fields but Notice are required.
type Options struct {
	Services []Service
	Every    time.Duration // how often the controllers are asked
	Clock    func(time.Time) string
	Now      func() time.Time
	Notice   string // shown until the first key
}

// view connects a screen to controllers.
type view struct {
	ctx    context.Context // ends with the program
	opts   Options
	screen *screen
}

func newView(ctx context.Context, opts Options) *view {
	s := &screen{width: 80, now: opts.Now(), clock: opts.Clock, message: opts.Notice}
	for _, sv := range opts.Services {
		s.services = append(s.services, service{name: sv.Name})
	}
	return &view{ctx, opts, s}
}

// answered is a controller's answer to a question for its status.
type answered struct {
	service int
	status  controller.Status
	err     error
}

// remembered are a service's samples from before the view began.
type remembered struct {
	service int
	samples []Sample
}

// done is the answer to a command.
type done struct {
	service int
	text    string
	err     error
}

// due says that a service is to be asked again.
type due struct{ service int }

// patience limits how long one answer is waited for.
const patience = 10 * time.Second

func (v *view) poll(i int) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(v.ctx, patience)
		defer cancel()
		status, err := v.opts.Services[i].Controller.Status(ctx)
		return answered{i, status, err}
	}
}

func (v *view) recall(i int, status controller.Status) tea.Cmd {
	past := v.opts.Services[i].Past
	if past == nil {
		return nil
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(v.ctx, patience)
		defer cancel()
		return remembered{i, past(ctx, &status)}
	}
}

func (v *view) send(i int, cmd bus.Command) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(v.ctx, patience)
		defer cancel()
		text, err := v.opts.Services[i].Controller.Command(ctx, cmd)
		return done{i, text, err}
	}
}

// Init asks all controllers.
func (v *view) Init() tea.Cmd {
	var all []tea.Cmd
	for i := range v.opts.Services {
		all = append(all, v.poll(i))
	}
	return tea.Batch(all...)
}

// Update handles a key, a new size or an answer.
func (v *view) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	v.screen.now = v.opts.Now()
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		v.screen.width, v.screen.height = max(1, msg.Width), max(1, msg.Height)
	case tea.KeyPressMsg:
		return v, v.press(msg.String())
	case tea.PasteMsg: // a paste is no answer to a question
	case answered:
		first := v.note(msg)
		again := tea.Tick(v.opts.Every, func(time.Time) tea.Msg { return due{msg.service} })
		if first {
			return v, tea.Batch(again, v.recall(msg.service, msg.status))
		}
		return v, again
	case due:
		return v, v.poll(msg.service)
	case remembered:
		sv := &v.screen.services[msg.service]
		sv.samples = joined(msg.samples, sv.samples)
	case done:
		v.screen.message = v.opts.Services[msg.service].Name + ": " + msg.text
		if msg.err != nil {
			v.screen.message = "REFUSED: " + oneLine(msg.err)
		}
		return v, v.poll(msg.service)
	}
	return v, nil
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// note puts an answer on the screen. first: it is the service's first decision that is seen.
func (v *view) note(a answered) (first bool) {
	sv := &v.screen.services[a.service]
	if a.err != nil {
		sv.failure = oneLine(a.err)
		return false
	}
	before := sv.status
	sv.status, sv.failure, sv.answered = &a.status, "", v.opts.Now()
	sv.arrange(v.screen.by, v.screen)
	if a.status.At.IsZero() {
		return false
	}
	sv.samples = joined(sv.samples, []Sample{sampleOf(&a.status)})
	return before == nil || before.At.IsZero()
}

func (v *view) press(key string) tea.Cmd {
	switch e, i, cmd := v.screen.press(key); e {
	case quit:
		return tea.Quit
	case suspend:
		return tea.Suspend
	case send:
		return v.send(i, cmd)
	}
	return nil
}

// View draws the screen. The terminal's own screen comes back at the end.
func (v *view) View() tea.View {
	picture := tea.NewView(strings.Join(v.screen.draw(), "\n"))
	picture.AltScreen = true
	return picture
}

// Run shows the services on a terminal until a person quits or ctx ends. However it ends, the terminal is as before.
func Run(ctx context.Context, opts Options, in io.Reader, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	v := newView(ctx, opts)
	v.screen.live, v.screen.styled, v.screen.height = true, true, 24
	program := tea.NewProgram(v, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(os.Environ()))
	_, err := program.Run()
	if ctx.Err() != nil && !errors.Is(err, tea.ErrProgramPanic) || errors.Is(err, tea.ErrInterrupted) {
		return nil // ended from outside, which is no failure
	}
	return err
}

// Print writes each service once, as plain text without cursor, keys and colours. The error names those that do not answer.
func Print(ctx context.Context, opts Options, out io.Writer, width int) error {
	v := newView(ctx, opts)
	v.screen.width = width
	var failures []string
	for i := range opts.Services {
		v.Update(v.poll(i)())
		sv := &v.screen.services[i]
		if past := v.opts.Services[i].Past; past != nil && sv.status != nil && !sv.status.At.IsZero() {
			v.Update(v.recall(i, *sv.status)())
		}
		if sv.failure != "" {
			failures = append(failures, fmt.Sprintf("service %s: %s", sv.name, sv.failure))
			continue
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		v.screen.chosen = i
		for _, line := range v.screen.draw() {
			if _, err := fmt.Fprintln(out, strings.TrimRight(line, " ")); err != nil {
				return err
			}
		}
	}
	if failures != nil {
		return errors.New(strings.Join(failures, "\nquell: "))
	}
	return nil
}
