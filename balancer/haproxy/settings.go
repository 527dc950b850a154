package haproxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/internal/logsocket"
	"github.com/quellhq/quell/setting"
)

// Kind is one or several HAProxies in front of a service.
var Kind = balancer.Kind{
	Name: "haproxy", About: "a HAProxy that runs already",
	Defaults: func() balancer.Settings { return &Settings{Health: Health{Interval: time.Second, Fall: 2, Rise: 2}} },
}

// Settings are their configuration.
type Settings struct {
	Sockets   []string // paths or host:port of the runtime API
	Backend   string
	Slots     string           // prefix of the servers declared for instances; empty: servers are added at run time
	Server    string           // parameters of servers added at run time, in addition to their checks
	StateFile string           // state file that HAProxy loads when it starts; empty: none
	Captured  bool             // the first captured request header is a request's class
	Log       string           // where HAProxy's log arrives: a path or host:port; empty: no log
	Formats   []string         // log-formats of frontends, beside those that are always read
	Balance   quell.Scheduling // the backend's algorithm; empty: unknown
	Health    Health
}

// Health configures HAProxy's checks of servers that are added at run time. The path and the time limit of these checks
// are in HAProxy's own configuration.
type Health struct {
	Interval   time.Duration
	Fall, Rise int // failed checks until a server is taken out, successful ones until it is back
}

// Keys returns the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Opt("health", setting.Table{
			setting.Opt("interval", setting.Duration(&s.Health.Interval).AtLeast(10*time.Millisecond), "time between checks"),
			setting.Opt("fall", setting.Whole(&s.Health.Fall).AtLeast(1), "failed checks in a row until an instance is unhealthy"),
			setting.Opt("rise", setting.Whole(&s.Health.Rise).AtLeast(1), "passed checks in a row until it is healthy again"),
		}, "how HAProxy checks servers that are added at run time"),
		setting.Req("haproxy", setting.Table{
			setting.Req("sockets", setting.ListOf(&s.Sockets, "", func(s *string) setting.Value { return setting.PathOrAddress(s) }).AtLeast(1),
				"runtime API of every HAProxy in front of the service, `level admin`: paths or host:port"),
			setting.Req("backend", setting.Ident(&s.Backend), "the backend whose servers are the instances"),
			setting.Opt("slots", setting.Ident(&s.Slots),
				"prefix of the names of servers declared with server-template, which are used for instances that come and go").
				Or("servers are added and deleted at run time"),
			setting.Opt("server", setting.Text(&s.Server).Then(oneCommand),
				"more parameters of servers added at run time, as in maxconn 100; `default-server` does not reach these servers").
				Or("health checks by balancer.health"),
			setting.Opt("balance", setting.OneOf(&s.Balance, Balances),
				"the backend's algorithm: what a group can carry is learned sooner; random2 stands for random").Or("unknown"),
			setting.Opt("state_file", setting.Text(&s.StateFile), "server-state-file of HAProxy, kept up to date for its restarts").Or("none"),
			setting.Opt("class_capture", setting.Bool(&s.Captured),
				"whether the first captured request header, or that of a log-format, is the request's class; off because it may be an address "+
					"or a cookie; `balancer.classes` comes first"),
			setting.Opt("log", setting.PathOrAddress(&s.Log),
				"where HAProxy sends its log: a path for a Unix datagram socket, or host:port for UDP").Or("none: response times are coarse"),
			setting.Opt("log_format", setting.ListOf(&s.Formats, "",
				func(s *string) setting.Value { return setting.Text(s).Then(formatProblem) }).OrOne(),
				"the log-format of a frontend, as in HAProxy's configuration, or a list of several").
				Or("option httplog and Quell's short format, which are always read"),
		}, "how to reach HAProxy, and the names in its configuration"),
	}
}

// Balances are HAProxy's algorithms that look for idle servers or take turns. Behind others each server has a queue of
// its own, as is assumed
// of unknown ones.
var Balances = []quell.Scheduling{quell.LeastConn, quell.RoundRobin, quell.Random2}

// Distributes returns the rule by which requests are distributed; empty if it is unknown.
func (s *Settings) Distributes() quell.Scheduling { return s.Balance }

// IdleFirst returns whether an idle server gets the next request whatever its weight. In HAProxy's leastconn the key of a server without
// requests is 0.
func (s *Settings) IdleFirst() bool { return s.Balance == quell.LeastConn }

// oneCommand checks text that becomes part of a command to HAProxy.
func oneCommand(s string) string {
	if strings.ContainsAny(s, ";\\\n\r") {
		return "must be one line without ; or \\"
	}
	return ""
}

// formatProblem checks a log-format.
func formatProblem(text string) string {
	if _, err := parseFormat(text); err != nil {
		return err.Error()
	}
	return ""
}

// formats compiles the configured formats, which were checked when the configuration was read.
func (s *Settings) formats() (list []*logFormat, err error) {
	for _, text := range s.Formats {
		f, err := parseFormat(text)
		if err != nil {
			return nil, &quell.UserError{Err: fmt.Errorf("balancer.haproxy.log_format: %w", err)}
		}
		list = append(list, f)
	}
	return list, nil
}

// Check reports keys that contradict each other.
func (s *Settings) Check(d *setting.Decoder) {
	if s.Slots != "" {
		d.Bars("balancer", "slots, whose lines in HAProxy's configuration have that", "health", "haproxy.server")
	}
	for i, socket := range s.Sockets {
		if path := fmt.Sprintf("balancer.haproxy.sockets[%d]", i); d.Sound(path) && slices.Contains(s.Sockets[:i], socket) {
			d.Refuse(path, "", "%s is listed twice", socket)
		}
	}
	if s.StateFile != "" && len(s.Sockets) > 1 && d.Sound("balancer.haproxy.sockets", "balancer.haproxy.state_file") {
		d.Refuse("balancer.haproxy.state_file", "remove it", "a state file serves one HAProxy, and %d sockets are given", len(s.Sockets))
	}
}

// CheckObjective refuses an objective that cannot be measured.
func (s *Settings) CheckObjective(d *setting.Decoder, metric quell.Metric) {
	if metric != quell.Mean && s.Log == "" {
		d.ProblemAt(d.PlaceOf("balancer.haproxy"),
			fmt.Sprintf("balancer.haproxy.log is missing: without its log HAProxy tells only mean response times, and the objective is a %s",
				metric),
			"set log, and send HAProxy's log there, or set slo.metric: mean")
	}
}

// Notes says which sockets are not there.
func (s *Settings) Notes() (notes []string) {
	for _, socket := range s.Sockets {
		if _, err := os.Stat(socket); strings.Contains(socket, "/") && errors.Is(err, fs.ErrNotExist) {
			notes = append(notes, fmt.Sprintf("balancer.haproxy.sockets: %s is not there: is HAProxy running, and does its `stats socket` line "+
				"name this path?", socket))
		}
	}
	return notes
}

// Where returns the addresses of the runtime APIs, as text for people.
func (s *Settings) Where() string { return strings.Join(s.Sockets, ",") }

// Manages names the backend at each HAProxy, and where its log arrives. No two services can use the same.
func (s *Settings) Manages() (names []string) {
	for _, socket := range s.Sockets {
		names = append(names, fmt.Sprintf("backend %s of HAProxy at %s", s.Backend, socket))
	}
	if s.Log != "" {
		names = append(names, "log at "+s.Log)
	}
	return names
}

// Files returns the paths that are relative to the configuration.
func (s *Settings) Files(string) []*string { return []*string{&s.StateFile} }

// OwnBackends returns whether nobody but this service's controller can have made the backends. If the list of machines is fixed, HAProxy
// may have had servers and weights before Quell was installed.
func (s *Settings) OwnBackends(ownMembers bool) bool { return ownMembers }

// New makes the driver.
func (s *Settings) New(in balancer.Service) (balancer.Driver, error) {
	return s.open(s.Sockets, Options{
		Server: s.serverParameters(), Members: in.Members, Memory: memoryPath(in), StateFile: s.StateFile, Drain: in.Drain, Logger: in.Logger,
	})
}

func memoryPath(in balancer.Service) string { return filepath.Join(in.Data, "haproxy.json") }

// Parts returns one part for each process, which reports its servers.
func (s *Settings) Parts(in balancer.Service) (parts []balancer.Part) {
	for _, socket := range s.Sockets {
		parts = append(parts, balancer.Part{
			About: fmt.Sprintf("HAProxy at %s: servers of backend %s", socket, s.Backend),
			Open: func() (balancer.Driver, error) {
				return balancer.Made(s.reader([]string{socket}, in))
			},
		})
	}
	return parts
}

// reader makes a driver that reports the servers of some processes. It knows from the controller's memory which instances they stand for:
// slots of no instance count as leaving. It never writes that memory, and does without if another user may not read it.
func (s *Settings) reader(sockets []string, in balancer.Service) (*Driver, error) {
	o := Options{
		Sockets: sockets, Backend: s.Backend, Slots: s.Slots, Members: in.Members, Memory: memoryPath(in), Drain: in.Drain,
		Logger: slog.New(slog.DiscardHandler),
	}
	d, err := New(o)
	if errors.Is(err, fs.ErrPermission) {
		o.Memory = ""
		d, err = New(o)
	}
	if err == nil {
		d.memory.Path = ""
	}
	return d, err
}

// Measure makes readings of the driver's instances and publishes them until the meter is stopped.
func (s *Settings) Measure(driver balancer.Driver, in balancer.Service, publish func([]quell.Reading)) (balancer.Meter, error) {
	o, err := s.monitoring(in)
	if err != nil {
		return nil, err
	}
	o.Publish = func(_ context.Context, readings []quell.Reading) { publish(readings) }
	ctx, cancel := context.WithCancel(context.Background())
	m := &meter{monitor: newMonitor(driver.(*Driver), o), cancel: cancel, done: make(chan struct{})}
	go func() {
		m.monitor.Run(ctx)
		close(m.done)
	}()
	return m, nil
}

// monitoring returns the options of a monitor, whose log is open.
func (s *Settings) monitoring(in balancer.Service) (o monitorOptions, err error) {
	o = monitorOptions{
		Service: in.Name, Sender: in.Balancer, Period: in.Period, Fast: in.Fast, Classes: in.Classes, Logger: in.Logger,
		Captured: s.Captured, FirstByte: in.FirstByte,
		Exact: in.Metric != "" && in.Metric != quell.Mean,
	}
	if o.Formats, err = s.formats(); err != nil || s.Log == "" {
		return o, err
	}
	o.Log, err = logsocket.Listen(s.Log, "HAProxy")
	return o, err
}

// meter is a running monitor.
type meter struct {
	monitor *monitor
	cancel  context.CancelFunc
	done    chan struct{}
}

// Pace implements balancer.Meter.
func (m *meter) Pace(period, fast time.Duration) { m.monitor.pace.Set(period, fast) }

// Err implements balancer.Meter.
func (m *meter) Err() error { return m.monitor.err() }

// Stop implements balancer.Meter.
func (m *meter) Stop() { m.cancel(); <-m.done }

func (s *Settings) open(sockets []string, o Options) (balancer.Driver, error) {
	o.Sockets, o.Backend, o.Slots = sockets, s.Backend, s.Slots
	return balancer.Made(New(o))
}

// serverParameters returns all parameters of a server added at run time. They are needed because HAProxy does not apply default-server to
// such a server.
func (s *Settings) serverParameters() string {
	checks := fmt.Sprintf("check inter %d fall %d rise %d", s.Health.Interval.Milliseconds(), s.Health.Fall, s.Health.Rise)
	return strings.TrimSpace(checks + " " + s.Server)
}
