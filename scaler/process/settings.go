package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/setting"
)

// Kind is the scaler whose instances are processes on the controller's machine.
var Kind = scaler.Kind{
	Name: "process", About: "children of the controller",
	Defaults: func() scaler.Settings {
		return &Settings{Ready: Ready{Path: "/healthz"}, Drain: 30 * time.Second}
	},
}

// Settings are its configuration.
type Settings struct {
	Command []string // {id} {port} {probe_port} {slot} {host} are replaced
	// Address and ProbeAddress are where instances are reached. The same placeholders are replaced in them. Empty: the assigned ports of
	// 127.0.0.1.
	Address, ProbeAddress string
	Slots                 int           // limit of instances at a time
	Ports                 setting.Ports // where instances listen
	Ready                 Ready
	Drain                 time.Duration
	Lifeline              bool          // instances end with the controller
	Linger                time.Duration // how long they run on without a controller; 0: for ever

	freeSlots, freeTimeout bool // the file leaves out slots, or ready.timeout
}

// Keys is the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Req("command", setting.Command(&s.Command),
			"the instance's program; {id} {port} {probe_port} {slot} {host} in it are replaced by the instance's values"),
		setting.Opt("address", setting.Text(&s.Address),
			"address at which an instance answers requests, with the same replacements as in command").Or("`127.0.0.1:{port}`"),
		setting.Opt("probe_address", setting.Text(&s.ProbeAddress),
			"address at which the instance's agent answers probes, with the same replacements").Or("`127.0.0.1:{probe_port}`, if that is used"),
		setting.Opt("slots", setting.Whole(&s.Slots).AtLeast(1), "largest number of instances at once").
			Or("group.max and one for a replacement; group.max where {slot} or {host} is used"),
		setting.Opt("ports", setting.PortRange(&s.Ports), "ports for instances, as in 9000-9099").Or("any free ones"),
		setting.Opt("ready", append(setting.Table{
			setting.Opt("path", setting.URLPath(&s.Ready.Path), "path that answers 200 once an instance can serve"),
			setting.Opt("timeout", setting.Duration(&s.Ready.Timeout).Above(0), "an instance that takes longer has failed").Or("group.startup"),
		}, s.Ready.Request.Keys()...), "how a starting instance shows that it can serve"),
		setting.Opt("drain", setting.Duration(&s.Drain).AtLeast(0), "how long a stopped instance may take to end before it is killed"),
		setting.Opt("lifeline", setting.Bool(&s.Lifeline), "whether instances end at once when the controller ends"),
		setting.Opt("linger", setting.Duration(&s.Linger).AtLeast(0),
			"instances end when no controller has run for this long; 0s: they never do"),
	}
}

// Follow fills in keys that the file leaves out from the service's configuration. It may be called again with another one.
func (s *Settings) Follow(service quell.Service) {
	s.freeSlots, s.freeTimeout = s.freeSlots || s.Slots == 0, s.freeTimeout || s.Ready.Timeout == 0
	if s.freeSlots {
		s.Slots = s.slotsFor(service.Group.Max)
	}
	if s.freeTimeout {
		s.Ready.Timeout = service.Group.Startup
	}
}

// slotsFor is the default number of slots: one more than the group's limit, so that an instance can be replaced while all run. There is no
// further slot if slots are machines ({slot} or {host} is used), or if there are too few ports.
func (s *Settings) slotsFor(most int) int {
	ports := s.Ports.Count()
	if s.names("{slot}") || s.names("{host}") || ports > 0 && ports < s.portsEach()*(most+1) {
		return most
	}
	return most + 1
}

// portsEach is the number of ports that an instance needs.
func (s *Settings) portsEach() int {
	if s.uses("{probe_port}") {
		return 2
	}
	return 1
}

// names returns whether a placeholder occurs in the command or in an address.
func (s *Settings) names(placeholder string) bool {
	return s.uses(placeholder) || strings.Contains(s.Address, placeholder) || strings.Contains(s.ProbeAddress, placeholder)
}

// OwnMembers returns true: only this service's controller can have made the instances.
func (s *Settings) OwnMembers() bool { return true }

// placeholders lists the words that are replaced in the command.
func placeholders() []string { return []string{"{id}", "{port}", "{probe_port}", "{slot}", "{host}"} }

var braced = regexp.MustCompile(`\{[A-Za-z_]+\}`)

// known reports a word in braces that is not a placeholder.
func known(d *setting.Decoder, path, word string) {
	for _, p := range braced.FindAllString(word, -1) {
		if !slices.Contains(placeholders(), p) {
			d.Refuse(path, "", "unknown placeholder %q%s", p, setting.Suggest(p, placeholders()))
		}
	}
}

// Check reports keys that contradict each other or the service.
func (s *Settings) Check(d *setting.Decoder, service quell.Service) {
	for i, word := range s.Command {
		known(d, fmt.Sprintf("scaler.command[%d]", i), word)
	}
	checkAddress(d, "scaler.address", s.Address)
	checkAddress(d, "scaler.probe_address", s.ProbeAddress)
	fixedPort := s.Address != "" && !strings.Contains(s.Address, "{port}")
	if d.Given("scaler.command") && d.Sound("scaler.command", "scaler.ports") && !s.uses("{port}") && s.Ports.Count() != 1 && !fixedPort {
		d.Refuse("scaler.command", "pass {port} to the program", "the instance would not learn which port to listen on")
	}
	if d.Sound("scaler.slots", "group.max", "group.min") && s.Slots < service.Group.Max {
		d.Refuse("scaler.slots", "", "%d slots do not hold group.max, which is %d instances", s.Slots, service.Group.Max)
	}
	each := s.portsEach()
	if n := s.Ports.Count(); n > 0 && d.Sound("scaler.ports", "scaler.slots", "scaler.command") && n < each*s.Slots {
		d.Refuse("scaler.ports", "", "%d ports are too few for %d instances with %d each", n, s.Slots, each)
	}
	if s.Lifeline && s.Linger > 0 && d.Sound("scaler.lifeline", "scaler.linger") {
		d.Refuse("scaler.linger", "remove one of the two", "scaler.lifeline ends the instances with the controller, so they cannot outlive it")
	}
}

// uses returns whether a placeholder occurs in the command.
func (s *Settings) uses(placeholder string) bool {
	return slices.ContainsFunc(s.Command, func(word string) bool { return strings.Contains(word, placeholder) })
}

// checkAddress checks a template of addresses: with its placeholders replaced, it must be a valid address.
func checkAddress(d *setting.Decoder, path, template string) {
	if !d.Given(path) || !d.Sound(path) {
		return
	}
	known(d, path, template)
	example := strings.NewReplacer("{id}", "i1", "{port}", "8080", "{probe_port}", "8081", "{slot}", "1", "{host}", "h1").Replace(template)
	if problem := setting.AddressProblem(example, true); d.Sound(path) && problem != "" {
		d.Refuse(path, "write host:port, as in 10.0.{slot}.2:80", "%s", problem)
	}
}

// options returns the options of a driver, without a lifeline.
func (s *Settings) options(in scaler.Env) Options {
	return Options{
		Command: s.Command, Address: s.Address, ProbeAddress: s.ProbeAddress, Slots: s.Slots, Dir: filepath.Join(in.Data, "instances"),
		Ports: PortRange(s.Ports), Ready: s.Ready, Drain: s.Drain, Logger: in.Logger,
	}
}

// New makes the driver. If instances need a lifeline and the process has not inherited one, New makes a pipe for it.
func (s *Settings) New(in scaler.Env) (scaler.Driver, error) {
	options, driver := s.options(in), &configured{settings: *s, lifeline: s.Lifeline}
	if s.Lifeline {
		options.Lifeline = in.Lifeline
	}
	var err error
	if s.Lifeline && in.Lifeline == nil {
		if options.Lifeline, driver.end, err = os.Pipe(); err != nil {
			return nil, fmt.Errorf("making the instances' lifeline: %w", err)
		}
		driver.pipe = options.Lifeline
	}
	if driver.Driver, err = New(options); err != nil {
		return nil, errors.Join(err, driver.closePipe())
	}
	return driver, nil
}

// configured is a driver whose instances end with the controller if the configuration says so.
type configured struct {
	*Driver
	settings  Settings
	lifeline  bool
	pipe, end *os.File // made by New; nil: none
}

// Refit follows a changed service: its group may be larger, or slower to start. Instances that are starting keep their time.
func (c *configured) Refit(service quell.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settings.Follow(service)
	c.opts.Slots, c.opts.Ready.Timeout = c.settings.Slots, c.settings.Ready.Timeout
}

// endWait limits how long closing may take in addition to the time that instances get to end.
const endWait = 10 * time.Second

// Close ends the instances, or leaves them to the next controller.
func (c *configured) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), endWait+c.opts.Drain)
	defer cancel()
	return errors.Join(c.Driver.Close(ctx, !c.lifeline), c.closePipe())
}

func (c *configured) closePipe() error {
	if c.pipe == nil {
		return nil
	}
	return errors.Join(c.end.Close(), c.pipe.Close())
}

// Lingering returns how long instances run on if their controller does not come back; 0: for ever.
func (s *Settings) Lingering() time.Duration { return s.Linger }

// EndInstances ends the instances, unless a controller has run since the given time: such a controller has its own process that ends them.
func (s *Settings) EndInstances(ctx context.Context, in scaler.Env, since time.Time) error {
	const settle = 500 * time.Millisecond // a controller's last write may be this much newer than the recorded time of its end
	options := s.options(in)
	list, err := os.Stat(filepath.Join(options.Dir, "instances.json"))
	if errors.Is(err, os.ErrNotExist) || err == nil && list.ModTime().After(since.Add(settle)) {
		return nil
	}
	if err != nil {
		return err
	}
	driver, err := New(options)
	if errors.Is(err, ErrInUse) {
		return nil // a controller is back
	}
	if err != nil {
		return err
	}
	in.Logger.Info("the instances end: no controller has come back", "after", s.Linger)
	ctx, cancel := context.WithTimeout(ctx, endWait+s.Drain)
	defer cancel()
	return driver.Close(ctx, false)
}
