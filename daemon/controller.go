package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/scaler"
)

// Controller runs a service's controller until ctx ends. Each value from reload makes it read the configuration and the models
// again; if they have mistakes, these are logged and the controller keeps the old ones.
func Controller(ctx context.Context, path string, reload <-chan os.Signal, log *slog.Logger) error {
	return runController(ctx, path, nil, reload, log)
}

// amend is controller.Options.Amend.
type amend = func(*quell.Snapshot, *quell.Plan)

func runController(ctx context.Context, path string, more amend, reload <-chan os.Signal, log *slog.Logger) (err error) {
	file, models, err := load(path, log)
	if err != nil {
		return err
	}
	ctx, cancel, pipe, err := lifeline.Tie(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	var stop cleanups
	defer func() { err = errors.Join(err, stop.run()) }()

	release, err := lockData(file.Data)
	if err != nil {
		return err
	}
	stop.add(release)
	conn, err := startBus(file, log, &stop)
	if err != nil {
		return err
	}
	lease := &leader{conn: conn, service: file.Service.Name, holder: holder(file), now: time.Now, least: leastLease(file)}
	driver, err := newBalancer(file, log, &stop)
	if err != nil {
		return err
	}
	var meter metering
	c, err := newController(file, models, more, driver, conn, lease, pipe, &meter, log, &stop)
	if err != nil {
		return err
	}
	if err := startLingerer(file, path, log, &stop); err != nil {
		return err
	}
	if err := attach(ctx, file, c, conn, log, &stop); err != nil {
		return err
	}
	if meter.Meter, err = measure(file, driver, c, log, &stop); err != nil {
		return err
	}
	go retiring(ctx, file, c, lease, log)
	resized := func(s quell.Service) {
		lease.resize(s.Sampling)
		if meter.Meter != nil {
			meter.Pace(s.Sampling, s.Policy.Fast.Sampling)
		}
	}
	manager := serviceManager{log}
	go reloading(ctx, path, file, c, resized, reload, manager)
	go manager.watchdog(ctx, func(context.Context) error { return c.Alive() })
	log.Info("controller started", "service", file.Service.Name, "policy", file.Service.Policy.Name, "mode", file.Service.Mode,
		"bus", busOf(file), "balancer", file.Balancer.Kind+" "+file.Balancer.Settings.Where(), "scaler", file.Scaler.Kind, "metrics", file.Listen)
	manager.ready()
	defer manager.stopping(stopWait)
	return c.Run(ctx)
}

// load reads a configuration and its models. Missing models are not an error, because the controller is useful
// without them.
func load(path string, log *slog.Logger) (*config.File, *model.Models, error) {
	file, err := Drivers().Load(path)
	if err != nil {
		return nil, nil, err
	}
	if file.Trained() == "" {
		return file, nil, nil
	}
	models, err := model.Load(file.Models)
	if errors.Is(err, os.ErrNotExist) {
		until := "equal weights until they are there and the configuration is reloaded"
		if file.Learns() {
			until = "learning begins from nothing"
		}
		log.Warn("no models yet: "+until, "models", file.Models)
		return file, nil, nil
	}
	return file, models, err
}

// startBus runs the embedded bus, or joins an external one.
func startBus(file *config.File, log *slog.Logger, stop *cleanups) (*bus.Conn, error) {
	var server *bus.Server
	if file.Bus.URL == "" {
		token, err := config.Token(file.Bus.Token, file.Bus.TokenFile)
		if err != nil {
			return nil, err
		}
		server, err = bus.StartServer(bus.ServerOptions{Listen: file.Bus.Listen, StoreDir: file.Bus.StoreDir,
			Keyring: &bus.Keyring{Dir: file.Bus.Keyring}, Token: token, TLS: bus.TLS(file.Bus.TLS), Logger: log})
		if err != nil {
			return nil, err
		}
		stop.add(server.Shutdown)
		if err := keepCredentials(file); err != nil {
			return nil, err
		}
	}
	conn, err := join(file, server, bus.Controller, string(bus.Controller), log)
	if err != nil {
		return nil, err
	}
	stop.add(func() error { conn.Close(); return nil })
	return conn, nil
}

// keepCredentials makes the credentials with which the other processes on this machine connect to the bus.
func keepCredentials(file *config.File) error {
	ring := bus.Keyring{Dir: file.Bus.Keyring}
	for role, id := range map[bus.Role]string{
		bus.Controller: string(bus.Controller), bus.Operator: string(bus.Operator), bus.Balancer: file.Balancer.Name,
	} {
		if _, err := ring.Find(bus.Grant{Role: role, Service: file.Service.Name, ID: id}); err != nil {
			return err
		}
	}
	return nil
}

func newController(
	file *config.File, models *model.Models, more amend, driver controller.Balancer, conn *bus.Conn, lease *leader, pipe *os.File,
	meter *metering, log *slog.Logger, stop *cleanups,
) (*controller.Controller, error) {
	name := file.Service.Name
	journal, err := conn.Journal(name, bus.JournalOptions{Bytes: file.Bus.JournalBytes})
	if err != nil {
		return nil, err
	}
	stop.add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopWait)
		defer cancel()
		return journal.Flush(ctx)
	})
	unserve, err := conn.ServeHistory(journal)
	if err != nil {
		return nil, err
	}
	stop.add(func() error { unserve(); return nil })
	state, err := conn.State(name)
	if err != nil {
		return nil, err
	}
	instances, err := newScaler(file, pipe, log, stop)
	if err != nil {
		return nil, err
	}
	lease.resize(file.Service.Sampling)
	stop.add(lease.release)
	written, memory := stores(file, journal, state, conn, lease, stop)
	_, listed := file.Scaler.Listed()
	return controller.New(controller.Options{
		Service: file.Service, Models: models, Balancer: driver, Scaler: instances, Journal: written, Memory: memory,
		Fixed: !file.Scaler.Changes(), Listed: listed,
		Drain: file.Balancer.Drain, Lead: lease.lead, Bus: conn.Err, Name: holder(file), Logger: log,
		Measured: meter.err,
		Agents:   agents{conn, name}, Amend: more, Marker: markIn(file.Data), Reopen: conn.Reopen,
		OwnMembers: ownMembers(file), OwnBackends: ownBackends(file), Learn: file.Learns(),
	})
}

// agents sends orders over the bus.
type agents struct {
	conn    *bus.Conn
	service string
}

func (a agents) Order(ctx context.Context, instance string, orders bus.Orders) error {
	return a.conn.Order(ctx, a.service, instance, orders)
}

// stores makes the controller's journal and memory. On an external bus, decisions do not wait for its servers to store something.
func stores(
	file *config.File, journal *bus.Journal, state *bus.State, conn *bus.Conn, lease *leader, stop *cleanups,
) (controller.Journal, controller.Memory) {
	if file.Bus.URL == "" {
		return journal, state
	}
	writer := conn.Writer(journal, state, lease.holds)
	stop.add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopWait)
		defer cancel()
		return writer.Close(ctx)
	})
	return writer, writer
}

// ownBackends returns whether nobody but this service's controller can have made the balancer's backends. With some balancers
// backends and weights may be older than the installation of Quell.
func ownBackends(file *config.File) bool {
	b, ok := file.Balancer.Settings.(interface{ OwnBackends(ownMembers bool) bool })
	return ok && b.OwnBackends(ownMembers(file))
}

func newBalancer(file *config.File, log *slog.Logger, stop *cleanups) (balancer.Driver, error) {
	driver, err := file.Balancer.Settings.New(serviceOf(file, log))
	if err != nil {
		return nil, err
	}
	if d, ok := driver.(interface{ Close() }); ok {
		stop.add(func() error { d.Close(); return nil })
	}
	return driver, nil
}

// measuring is a balancer whose requests are measured in the controller's process.
type measuring interface {
	Measure(driver balancer.Driver, s balancer.Service, publish func([]quell.Reading)) (balancer.Meter, error)
}

// metering is the controller's meter. It has none before Run, and for balancers that measure their requests themselves.
type metering struct{ balancer.Meter }

func (m *metering) err() error {
	if m.Meter == nil {
		return nil
	}
	return m.Err()
}

// measure starts the measuring of a balancer's requests and passes the readings to the controller. It returns nil if the balancer
// measures its requests itself.
func measure(
	file *config.File, driver balancer.Driver, c *controller.Controller, log *slog.Logger, stop *cleanups,
) (balancer.Meter, error) {
	b, ok := file.Balancer.Settings.(measuring)
	if !ok {
		return nil, nil
	}
	meter, err := b.Measure(driver, serviceOf(file, log), func(readings []quell.Reading) {
		for _, r := range readings {
			c.Observe(r, time.Now())
		}
	})
	if err != nil {
		return nil, err
	}
	stop.add(func() error { meter.Stop(); return nil })
	return meter, nil
}

func newScaler(file *config.File, pipe *os.File, log *slog.Logger, stop *cleanups) (scaler.Driver, error) {
	driver, err := file.Scaler.Settings.New(scaler.Surroundings{Data: file.Data, Lifeline: pipe, Logger: log})
	if err != nil {
		return nil, err
	}
	if d, ok := driver.(io.Closer); ok {
		stop.add(d.Close)
	}
	return driver, nil
}

// ownMembers returns whether nobody but this service's controller can have started the instances.
func ownMembers(file *config.File) bool {
	s, ok := file.Scaler.Settings.(interface{ OwnMembers() bool })
	return ok && s.OwnMembers()
}

// holder names this controller in the lease. The name is the same after a restart, so that a controller that crashed can take its
// own lease again at once.
func holder(file *config.File) string {
	host, _ := os.Hostname()
	data, err := filepath.Abs(file.Data)
	if err != nil {
		data = file.Data
	}
	return host + ":" + data
}

// attach connects the controller with the bus for readings and commands, serves its metrics, and starts its prober if the balancer
// has none.
func attach(ctx context.Context, file *config.File, c *controller.Controller, conn *bus.Conn, log *slog.Logger, stop *cleanups) error {
	unsubscribe, err := conn.SubscribeReadings(file.Service.Name, bus.Intake{Accept: c.Observe, Reject: c.Reject, Known: c.Knows})
	if err != nil {
		return err
	}
	stop.add(func() error { unsubscribe(); return nil })
	unserve, err := conn.Serve(file.Service.Name, c.Command)
	if err != nil {
		return err
	}
	stop.add(func() error { unserve(); return nil })
	shut, err := ServeHTTP("the controller's metrics", file.Listen, c.Handler(), log)
	if err != nil {
		return err
	}
	stop.add(func() error { shut(); return nil })
	if file.Probe.From != config.FromController {
		return nil
	}
	if file.Unprobed() {
		tellUnprobed(file, log)
		return nil
	}
	prober, err := newProber(file, "controller", func() []probe.Target { return targetsOf(c) },
		func(_ context.Context, r quell.Reading) error {
			c.Observe(r, time.Now())
			return nil
		}, log)
	if err != nil {
		return err
	}
	go prober.Run(ctx)
	return nil
}

// targetsOf lists the probe servers of a controller's instances.
func targetsOf(c *controller.Controller) []probe.Target {
	var targets []probe.Target
	for _, m := range c.Members() {
		if m.Probe != "" && m.State == quell.Ready {
			targets = append(targets, probe.Target{Instance: m.ID, Address: m.Probe})
		}
	}
	return targets
}

// reloading reads the configuration again at each value from reload, and applies it; if it has mistakes the controller keeps the
// old one. It calls resized with the new periods.
func reloading(
	ctx context.Context, path string, started *config.File, c *controller.Controller, resized func(quell.Service), reload <-chan os.Signal,
	manager serviceManager,
) {
	running := started
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
		}
		manager.reload(func() {
			file, err := apply(path, started, c, manager.log)
			if err != nil {
				manager.log.Error("the new configuration is bad: keeping the running one", "error", err)
				return
			}
			resized(file.Service)
			c.Note(ctx, reloadText(started, running, file))
			running = file
		})
	}
}

// apply reads the configuration and the models and passes them to the controller.
func apply(path string, started *config.File, c *controller.Controller, log *slog.Logger) (*config.File, error) {
	file, models, err := load(path, log)
	if err != nil {
		return nil, err
	}
	if started.Probe.From == config.FromController && started.Unprobed() && policy.Feels(file.Service.Policy.Name) {
		return nil, fmt.Errorf("policy %s needs probes, and this controller started with one that needs none: set probe.capacity if it is "+
			"missing, and restart the controller", file.Service.Policy.Name)
	}
	return file, c.Reload(file.Service, models, file.Learns())
}

// reloadText says what a reload changed, and what else must be done to apply it. Until the controller is restarted, it repeats for which
// changes since its start that is needed.
func reloadText(started, running, file *config.File) string {
	changed := config.Changed(running, file)
	text := "reloaded the configuration and the models"
	switch needs := file.NeedsRestart(config.Changed(started, file), changed); {
	case needs != "":
		text += ". " + needs + " Everything else was reloaded."
	case len(changed) == 0:
		text += ": no key changed."
	default:
		text += "."
	}
	if running.Service.Mode == quell.Act && file.Service.Mode == quell.Advise {
		text += " What is in force stays; quell release puts everything back as it was before Quell."
	}
	if len(changed) > 0 {
		text += " Changed: " + strings.Join(changed, ", ")
	}
	return text
}
