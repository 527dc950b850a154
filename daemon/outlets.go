package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/policy/table"
)

// load reads the configuration of an agent, and names its machine. It returns the services that list this machine; the agent serves them
// all. A service whose file has mistakes is left out and logged, so that it does not keep the others from being served.
func (r *reporter) load(instance string) ([]*config.File, error) {
	fleet, err := Drivers().LoadFleet(r.path)
	if err != nil {
		return nil, err
	}
	if err := checkWeb(fleet.Shared); err != nil {
		return nil, err
	}
	r.instance = cmp.Or(instance, fleet.Shared.Agent.Instance)
	for _, bad := range fleet.Bad {
		r.log.Error("a service is not served until its file is mended and the configuration is reloaded", "file", bad.Path, "service", bad.Name,
			"error", bad.Err)
	}
	return r.listing(fleet)
}

// loadAgain reads the configuration again. If one file has mistakes, all stay as they are.
func (r *reporter) loadAgain() ([]*config.File, error) {
	fleet, err := Drivers().LoadFleet(r.path)
	if err == nil {
		err = fleet.Err()
	}
	if err == nil {
		err = checkWeb(fleet.Shared)
	}
	if err != nil {
		return nil, err
	}
	return r.listing(fleet)
}

// listing returns the services that list this machine.
func (r *reporter) listing(fleet *config.Fleet) (list []*config.File, err error) {
	if fleet.Shared.Local() {
		return fleet.Services, nil
	}
	if r.instance == "" {
		return nil, &quell.UserError{Err: fmt.Errorf("%s: agent.instance is not set: name the instance there or with --instance", r.path)}
	}
	var errs []error
	for _, file := range fleet.Services {
		if err := file.CheckInstance(r.instance); err != nil {
			errs = append(errs, err)
			continue
		}
		file.Agent.Instance = r.instance // by which its sensors find the machine in the service's list
		list = append(list, file)
	}
	if len(list) == 0 {
		return nil, errors.Join(errs...)
	}
	return list, nil
}

// namesOf are the names of services, for logs.
func namesOf(files []*config.File) string { return strings.Join(serviceNames(files), ",") }

func serviceNames(files []*config.File) []string {
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = file.Service.Name
	}
	return names
}

// fastestOf returns the service with the shortest fast period among those whose fast policy uses what agents measure; nil if there is none.
func fastestOf(files []*config.File) (fastest *config.File, period time.Duration) {
	for _, file := range files {
		if fast := file.Service.Policy.Fast; table.All.UsesAgents(fast) && (fastest == nil || fast.Sampling < period) {
			fastest, period = file, fast.Sampling
		}
	}
	return fastest, period
}

// outlets are an agent's connections: one for each service, because a credential is for one service.
type outlets struct {
	mu     sync.Mutex
	list   []*outlet
	opened bool // orders are received
}

// outlet is the connection of one service.
type outlet struct {
	service string
	fast    bool // its fast policy uses what agents measure
	conn    *bus.Conn
	leave   func() // ends the renewing of its credential
	order   bus.OrderHandler
	unserve func() // nil: orders are not received yet
	who     string // the instance
}

// connect connects for services that have no connection yet, and closes the connections of those that are gone.
func (r *reporter) connect(files []*config.File) error {
	if r.reports != nil {
		r.reports.Serve(serviceNames(files))
	}
	return r.outlets.serve(files, func(file *config.File) (*outlet, error) {
		conn, leave, err := enlist(context.Background(), file, r.instance, r.log)
		if err != nil {
			return nil, err
		}
		service := file.Service.Name
		order := func(ctx context.Context, o bus.Orders) (any, error) {
			switch {
			case o.Training != nil:
				return r.trainee.Order(*o.Training)
			case o.Report != nil && r.reports != nil:
				r.reports.Tell(service, *o.Report)
				return nil, nil
			}
			return nil, carryOut(ctx, r.now.Load(), o)
		}
		return &outlet{service: service, conn: conn, leave: leave, who: r.instance, order: order}, nil
	})
}

// enlist connects for one service. If the machine joins with a token, its credential is renewed until leave is called. The first attempt to
// get one comes before the connection, which tries again and again if there is none yet. It is not waited for when ctx ends.
func enlist(ctx context.Context, file *config.File, instance string, log *slog.Logger) (conn *bus.Conn, leave func(), err error) {
	if !joins(file, auth.Sensor) {
		conn, err = join(file, nil, auth.Sensor, instance, log)
		return conn, func() {}, err
	}
	renewing, leave := context.WithCancel(context.Background())
	connected, first := make(chan struct{}), make(chan struct{})
	var opened *bus.Conn // set before connected is closed
	once := sync.OnceFunc(func() { close(first) })
	go newEnrolment(file, instance, log).run(renewing, func() {
		once()
		select {
		case <-connected:
			if err := opened.Refresh(); err != nil {
				log.Warn("connecting with the new credential", "error", err)
			}
		default:
		}
	})
	select {
	case <-first:
	case <-time.After(askingTime):
	case <-ctx.Done():
		leave()
		return nil, nil, ctx.Err()
	}
	if opened, err = join(file, nil, auth.Sensor, instance, log); err != nil {
		leave()
		return nil, nil, err
	}
	close(connected)
	return opened, leave, nil
}

// serve makes the list that of these services. If a new one cannot be connected, the list stays as it is.
func (o *outlets) serve(files []*config.File, connect func(*config.File) (*outlet, error)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list, added []*outlet
	for _, file := range files {
		i := slices.IndexFunc(o.list, func(old *outlet) bool { return old.service == file.Service.Name })
		if i >= 0 {
			list = append(list, o.list[i])
			continue
		}
		next, err := connect(file)
		if err == nil && o.opened {
			err = next.open()
		}
		if err != nil {
			for _, one := range added {
				one.close()
			}
			return fmt.Errorf("service %s: %w", file.Service.Name, err)
		}
		list, added = append(list, next), append(added, next)
	}
	for _, old := range o.list {
		if !slices.Contains(list, old) {
			old.close()
		}
	}
	for i, file := range files {
		list[i].fast = table.All.UsesAgents(file.Service.Policy.Fast)
	}
	o.list = list
	return nil
}

// open begins to receive orders.
func (o *outlets) open() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opened = true
	for _, one := range o.list {
		if err := one.open(); err != nil {
			return err
		}
	}
	return nil
}

// shut ends the receiving of orders. The connections stay open for readings.
func (o *outlets) shut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opened = false
	for _, one := range o.list {
		if one.unserve != nil {
			one.unserve()
			one.unserve = nil
		}
	}
}

func (o *outlet) open() (err error) {
	o.unserve, err = o.conn.ServeOrders(o.service, o.who, o.order)
	return err
}

func (o *outlet) close() {
	if o.unserve != nil {
		o.unserve()
	}
	o.leave()
	o.conn.Close()
}

// publish sends a reading of the machine to each service. One that cannot be reached does not hold up the others.
func (o *outlets) publish(_ context.Context, r quell.Reading) error {
	o.mu.Lock()
	list := slices.Clone(o.list)
	fast := make([]bool, len(list))
	for i, one := range list {
		fast[i] = one.fast
	}
	o.mu.Unlock()
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, one := range list {
		if r.Fast && !fast[i] {
			continue
		}
		all.Go(func() {
			own := r
			own.Service = one.service
			if errs[i] = one.conn.PublishReading(own); errs[i] != nil && len(list) > 1 {
				errs[i] = fmt.Errorf("service %s: %w", one.service, errs[i])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// count returns the number of services.
func (o *outlets) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.list)
}

// err returns which services the bus cannot be reached for, and why; nil if there are none.
func (o *outlets) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for _, one := range o.list {
		if err := one.conn.Err(); err != nil && len(o.list) > 1 {
			errs = append(errs, fmt.Errorf("service %s: %w", one.service, err))
		} else {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
