package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
	"github.com/quellhq/quell/page"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/train"
)

// Controller runs a service's controller until ctx ends. Each value from reload makes it read the configuration and the models
// again; if they have mistakes, these are logged and the controller keeps the old ones.
func Controller(ctx context.Context, path string, reload <-chan os.Signal, log *slog.Logger) error {
	return runController(ctx, path, table.All, reload, log)
}

func runController(ctx context.Context, path string, policies policy.Table, reload <-chan os.Signal, log *slog.Logger) (err error) {
	fleet, err := Drivers().LoadFleet(path)
	if err != nil {
		return err
	}
	if err := checkWeb(fleet.Shared); err != nil {
		return err
	}
	if fleet.Shared.Local() {
		_, err := Drivers().Load(path) // says what such a file is for
		return err
	}
	if _, err := Drivers().CheckFleet(path); err != nil {
		log.Warn("the configuration has mistakes with which the controller runs all the same: see quell config check", "mistakes", err)
	}
	ctx, cancel, pipe, err := lifeline.Tie(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	var stop cleanups
	defer func() { err = errors.Join(err, stop.run()) }()
	release, err := lockData(fleet.Shared.Data)
	if err != nil {
		return err
	}
	stop.add(release)
	p := &platform{path: path, policies: policies, pipe: pipe, log: log}
	if !fleet.Several() {
		return p.runAlone(ctx, fleet.Shared, reload, &stop)
	}
	return p.runSeveral(ctx, fleet, reload, &stop)
}

// platform is what the services of one controller share.
type platform struct {
	path     string
	policies policy.Table
	pipe     *os.File
	server   *bus.Server // nil: the bus runs elsewhere
	shares   *sharing    // nil: there is one service
	log      *slog.Logger
}

// runAlone runs the only service of a configuration.
func (p *platform) runAlone(ctx context.Context, file *config.File, reload <-chan os.Signal, stop *cleanups) (err error) {
	models, err := loadModels(file, p.log)
	if err != nil {
		return err
	}
	if p.server, err = startBus(file, p.log, stop); err != nil {
		return err
	}
	r, err := p.start(ctx, file, models)
	if err != nil {
		return err
	}
	stop.add(r.stop.run)
	manager := serviceManager{p.log, newSelf()}
	shut, err := ServeHTTP("the controller's page and metrics", file.Listen, file.Web, pages(manager.self, r.Controller, r.page), p.log)
	if err != nil {
		return err
	}
	stop.add(func() error { shut(); return nil })
	metrics := prometheus.Gatherers{manager.self.registry, r.Metrics()}
	farewell, err := exportOTLP(ctx, "controller", file.Service.Name, metrics, p.log)
	if err != nil {
		return err
	}
	stop.add(func() error { farewell(); return nil })
	if file.Listen != "" {
		go r.page.Run(ctx)
	}
	go reloading(ctx, p.path, r, reload, manager)
	go manager.watchdog(ctx, func(context.Context) error { return r.Alive() })
	manager.ready()
	defer manager.stopping(stopWait)
	return r.Run(ctx)
}

// runner is one service of a controller.
type runner struct {
	*controller.Controller
	file  *config.File // the configuration at its start
	lease *leader
	meter metering
	stop  cleanups
	page  *page.Server
	shown http.Handler // of the page
	group scaler.Driver
}

// start starts everything of a service but its loop.
func (p *platform) start(ctx context.Context, file *config.File, models *model.Models) (r *runner, err error) {
	ctx, cancel := context.WithCancel(ctx)
	r = &runner{file: file}
	stop := &r.stop // r is nil after an error
	stop.add(func() error { cancel(); return nil })
	defer func() {
		if err != nil {
			err = errors.Join(err, stop.run())
		}
	}()
	log := p.log
	if file.OneOfSeveral() {
		log = log.With("service", file.Service.Name)
		release, err := lockData(file.Data)
		if err != nil {
			return nil, err
		}
		r.stop.add(release)
	}
	conn, err := p.connect(file, log)
	if err != nil {
		return nil, err
	}
	r.stop.add(func() error { conn.Close(); return nil })
	holder, cloned, err := holderOf(file, bootID())
	if cloned {
		log.Info("this controller has a new id: its data folder was last used before this machine started, or on another one", "id", holder)
	}
	if err != nil {
		log.Warn("this controller's id cannot be stored: started again, it waits until its own lease ends", "error", err)
	}
	r.lease = &leader{conn: conn, service: file.Service.Name, holder: holder, now: time.Now, least: leastLease(file)}
	driver, err := newBalancer(file, agents{conn, file.Service.Name}.tell, log, &r.stop)
	if err != nil {
		return nil, err
	}
	if r.page, err = newPage(file, conn, log); err != nil {
		return nil, err
	}
	if r.Controller, err = p.newController(file, models, driver, conn, r, log); err != nil {
		return nil, err
	}
	r.page.Show(r.Controller)
	r.shown = r.page.Handler()
	if err := startLingerer(file, p.path, log, &r.stop); err != nil {
		return nil, err
	}
	joining := newKeeper(ctx, file, r.Controller, r.group, r.lease, log)
	if kind := proofOf(file.Scaler.Settings); kind != "" && p.server != nil {
		p.server.AcceptProofs(file.Service.Name, kind)
	}
	if err := attach(ctx, file, r.Controller, p.commands(file, r), joining, conn, log, &r.stop); err != nil {
		return nil, err
	}
	if r.meter.Meter, err = measure(file, driver, r.Controller, log, &r.stop); err != nil {
		return nil, err
	}
	if err := answerKEDA(file, r.Controller, log, &r.stop); err != nil {
		return nil, err
	}
	go retiring(ctx, file, r.Controller, r.lease, log)
	p.log.Info("controller started", "service", file.Service.Name, "policy", file.Service.Policy.Name, "mode", file.Service.Mode,
		"bus", busOf(file), "balancer", file.Balancer.Kind+" "+file.Balancer.Settings.Where(), "scaler", file.Scaler.Kind, "metrics", file.Listen)
	return r, nil
}

// resized passes new periods on, and the new bounds of the group to a scaler that has limits by them.
func (r *runner) resized(s quell.Service) {
	r.lease.resize(s.Sampling)
	if d, ok := r.group.(interface{ Refit(quell.Service) }); ok {
		d.Refit(s)
	}
	if r.meter.Meter != nil {
		r.meter.Pace(s.Sampling, s.Policy.Fast.Sampling)
	}
}

// load reads a configuration and its models. Missing models are not an error, because the controller is useful
// without them.
func load(path string, log *slog.Logger) (*config.File, *model.Models, error) {
	file, err := Drivers().Load(path)
	if err != nil {
		return nil, nil, err
	}
	if err := checkWeb(file); err != nil {
		return nil, nil, err
	}
	models, err := loadModels(file, log)
	return file, models, err
}

func loadModels(file *config.File, log *slog.Logger) (*model.Models, error) {
	if file.Trained() == "" {
		return nil, nil
	}
	models, err := modelfile.Load(file.Models)
	if errors.Is(err, os.ErrNotExist) {
		until := "equal weights until they are there and the configuration is reloaded"
		if file.Learns() {
			until = "learning begins from nothing"
		}
		log.Warn("no models yet: "+until, "models", file.Models)
		return nil, nil
	}
	return models, err
}

// startBus runs the embedded bus. It returns nil if the bus is an external one.
func startBus(file *config.File, log *slog.Logger, stop *cleanups) (*bus.Server, error) {
	if file.Bus.URL != "" {
		return nil, nil
	}
	token, err := config.Token(file.Bus.Token, file.Bus.TokenFile)
	if err != nil {
		return nil, err
	}
	server, err := bus.StartServer(bus.ServerOptions{Listen: file.Bus.Listen, StoreDir: file.Bus.StoreDir,
		Keyring: &auth.Keyring{Dir: file.Bus.Keyring}, Token: token, TLS: bus.TLS(file.Bus.TLS), Logger: log})
	if err != nil {
		return nil, err
	}
	stop.add(server.Shutdown)
	return server, nil
}

// connect joins the bus for one service.
func (p *platform) connect(file *config.File, log *slog.Logger) (*bus.Conn, error) {
	if p.server != nil {
		if err := keepCredentials(file); err != nil {
			return nil, err
		}
	}
	return join(file, p.server, auth.Controller, string(auth.Controller), log)
}

// keepCredentials makes the credentials with which the other processes on this machine connect to the bus.
func keepCredentials(file *config.File) error {
	ring := keyringOf(file)
	for role, id := range map[auth.Role]string{
		auth.Controller: string(auth.Controller), auth.Operator: string(auth.Operator), auth.Balancer: file.Balancer.Name,
	} {
		if _, err := ring.Find(auth.Grant{Role: role, Service: file.Service.Name, ID: id}); err != nil {
			return err
		}
	}
	return nil
}

func (p *platform) newController(
	file *config.File, models *model.Models, driver controller.Balancer, conn *bus.Conn, r *runner, log *slog.Logger,
) (*controller.Controller, error) {
	name, stop, lease := file.Service.Name, &r.stop, r.lease
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
	if r.group, err = newScaler(file, p.pipe, log, stop); err != nil {
		return nil, err
	}
	lease.resize(file.Service.Sampling)
	stop.add(lease.release)
	written, memory := stores(file, journal, state, conn, lease, stop)
	_, listed := file.Scaler.Listed()
	o := controller.Options{
		Service: file.Service, Policies: p.policies, Models: models, Learn: file.Learns(),
		Balancer: driver, Scaler: r.group, Journal: r.page.Follow(written), Memory: memory,
		Fixed: !file.Scaler.Changes(), Listed: listed,
		Drain: file.Balancer.Drain, Lead: lease.lead, Bus: conn.Err, Name: nameOf(file), Logger: log,
		Measured: r.meter.err,
		Agents:   agents{conn, name}, Marker: markIn(file.Data), Earlier: earlier{file.Data}, Reopen: conn.Reopen,
		OwnMembers: ownMembers(file), OwnBackends: ownBackends(file, ownMembers(file)), OwnBalancer: ownBackends(file, false),
		Rows: train.KeepNights(file.Data),
	}
	if p.shares != nil {
		o.Shared = p.shares
	}
	return controller.New(o)
}

// agents sends orders over the bus.
type agents struct {
	conn    *bus.Conn
	service string
}

func (a agents) Order(ctx context.Context, instance string, orders bus.Orders) error {
	return a.conn.Order(ctx, a.service, instance, orders)
}

func (a agents) Train(ctx context.Context, instance string, t bus.Training) (bus.Trained, error) {
	return a.conn.Train(ctx, a.service, instance, t)
}

// tell tells an instance's agent what to report to balancers.
func (a agents) tell(ctx context.Context, instance string, r quell.LoadReport) error {
	return a.Order(ctx, instance, bus.Orders{Report: &r})
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

// ownBackends returns whether nobody but this service's controller can have made the balancer's backends, given whether that holds for the
// instances. With some balancers backends and weights may be older than the installation of Quell.
func ownBackends(file *config.File, ownMembers bool) bool {
	b, ok := file.Balancer.Settings.(interface{ OwnBackends(ownMembers bool) bool })
	return ok && b.OwnBackends(ownMembers)
}

func newBalancer(
	file *config.File, tell func(context.Context, string, quell.LoadReport) error, log *slog.Logger, stop *cleanups,
) (balancer.Driver, error) {
	service := serviceOf(file, log)
	service.Tell = tell
	driver, err := file.Balancer.Settings.New(service)
	if err != nil {
		return nil, err
	}
	if d, ok := driver.(interface{ Close() }); ok {
		stop.add(func() error { d.Close(); return nil })
	}
	return driver, nil
}

// measuring is a balancer whose requests may be measured in the controller's process. If they are not, the meter is nil.
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
	if err != nil || meter == nil {
		return nil, err
	}
	stop.add(func() error { meter.Stop(); return nil })
	return meter, nil
}

func newScaler(file *config.File, pipe *os.File, log *slog.Logger, stop *cleanups) (scaler.Driver, error) {
	driver, err := file.Scaler.Settings.New(scaler.Env{Data: file.Data, Lifeline: pipe, Logger: log})
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

// nameOf names this controller for people.
func nameOf(file *config.File) string {
	host, _ := os.Hostname()
	data, err := filepath.Abs(file.Data)
	if err != nil {
		data = file.Data
	}
	return host + ":" + data
}

// attach connects the controller with the bus for readings and commands, and starts its prober if the balancer has none.
func attach(
	ctx context.Context, file *config.File, c *controller.Controller, commands func(context.Context, bus.Command) bus.Reply,
	joining bus.Doorkeeper, conn *bus.Conn, log *slog.Logger, stop *cleanups,
) error {
	unsubscribe, err := conn.SubscribeReadings(file.Service.Name, bus.Intake{Accept: c.Observe, Reject: c.Reject, Known: c.Knows})
	if err != nil {
		return err
	}
	stop.add(func() error { unsubscribe(); return nil })
	unserve, err := conn.Serve(file.Service.Name, commands)
	if err != nil {
		return err
	}
	stop.add(func() error { unserve(); return nil })
	unjoin, err := conn.ServeJoins(file.Service.Name, joining)
	if err != nil {
		return err
	}
	stop.add(func() error { unjoin(); return nil })
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
// old one.
func reloading(ctx context.Context, path string, r *runner, reload <-chan os.Signal, manager serviceManager) {
	running := r.file
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
		}
		manager.reload(func() bool {
			file, models, err := load(path, manager.log)
			if err == nil {
				err = r.check(file, models)
			}
			if err == nil {
				err = r.apply(ctx, running, file, models)
			}
			if err != nil {
				manager.log.Error("the new configuration is bad: keeping the running one", "error", err)
				return false
			}
			running = file
			return true
		})
	}
}

// check returns an error if the running service cannot take a configuration over.
func (r *runner) check(file *config.File, models *model.Models) error {
	if r.file.Probe.From == config.FromController && r.file.Unprobed() && table.All.Feels(file.Service.Policy.Name) {
		return fmt.Errorf("policy %s needs probes, and this controller started with one that needs none: set probe.capacity if it is "+
			"missing, and restart the controller", file.Service.Policy.Name)
	}
	return controller.Check(table.All, file.Service, models, file.Learns())
}

// apply passes a configuration to the running service.
func (r *runner) apply(ctx context.Context, running, file *config.File, models *model.Models) error {
	if err := r.Reload(file.Service, models, file.Learns()); err != nil {
		return err
	}
	r.resized(file.Service)
	r.Note(ctx, reloadText(r.file, running, file))
	return nil
}

// reloadText says what a reload changed, and what else must be done to apply it. Until the controller is restarted, it repeats for which
// changes since its start that is needed.
func reloadText(started, running, file *config.File) string {
	changed := config.Changed(running, file)
	text := "reloaded the configuration and the models"
	switch needs := config.NeedsRestart(file, config.Changed(started, file), changed); {
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
