package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/table"
)

// retryService is how long a service that cannot run is left alone before it is tried again.
const retryService = 5 * time.Second

// services are the services of one controller. Each runs by itself: one that fails, or whose file is damaged, does not hold up the others.
type services struct {
	*platform
	shared *config.File // the file that names them, at the start
	hosts  []string     // names under which browsers may ask for the pages

	mu   sync.Mutex // guards the fields below
	list []*service // in the order of the file
	bad  []config.BadService
}

// service is one of them. The fields of the second group are guarded by services.mu.
type service struct {
	name    string
	stop    context.CancelFunc
	stopped chan struct{} // closed when it has ended
	tried   chan struct{} // closed when it has been started once, or could not be

	file   *config.File // what is in force, or what it is started with next
	models *model.Models
	runner *runner // nil: it does not run
	err    error   // why it does not run
}

// runSeveral runs several services until ctx ends.
func (p *platform) runSeveral(ctx context.Context, fleet *config.Fleet, reload <-chan os.Signal, stop *cleanups) (err error) {
	if p.server, err = startBus(fleet.Shared, p.log, stop); err != nil {
		return err
	}
	p.shares = openSharing(fleet.Shared.Data, p.log)
	stop.add(p.shares.close)
	all := &services{platform: p, shared: fleet.Shared, bad: fleet.Bad}
	for _, file := range fleet.Services {
		all.hosts = append(all.hosts, file.Page.Hosts...)
	}
	manager := serviceManager{p.log, newSelf()}
	metrics := all.gatherer(manager.self)
	shut, err := ServeHTTP("the controller's metrics", fleet.Shared.Listen, fleet.Shared.Web, all.handler(metrics), p.log)
	if err != nil {
		return err
	}
	stop.add(func() error { shut(); return nil })
	farewell, err := exportOTLP(ctx, "controller", "", metrics, p.log)
	if err != nil {
		return err
	}
	stop.add(func() error { farewell(); return nil })
	for _, file := range fleet.Services {
		models, err := loadModels(file, p.log)
		if err != nil {
			all.bad = append(all.bad, config.BadService{Path: file.Path, Name: file.Service.Name, Err: err})
			continue
		}
		all.launch(ctx, file, models)
	}
	for _, bad := range all.bad {
		p.log.Error("a service does not run until its file is mended and the configuration is reloaded", "file", bad.Path,
			"service", bad.Name, "error", bad.Err)
	}
	defer all.end()
	all.awaitTried(ctx)
	go manager.watchdog(ctx, func(context.Context) error { return all.alive() })
	manager.ready()
	defer manager.stopping(stopWait)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-reload:
			manager.reload(func() bool { return all.reload(ctx) })
		}
	}
}

// launch starts a service and keeps it running.
func (s *services) launch(ctx context.Context, file *config.File, models *model.Models) {
	ctx, cancel := context.WithCancel(ctx)
	one := &service{name: file.Service.Name, file: file, models: models, stop: cancel, stopped: make(chan struct{}),
		tried: make(chan struct{})}
	s.mu.Lock()
	s.list = append(s.list, one)
	s.mu.Unlock()
	go s.supervise(ctx, one)
}

// supervise starts a service again whenever it has failed.
func (s *services) supervise(ctx context.Context, one *service) {
	defer close(one.stopped)
	tried := sync.OnceFunc(func() { close(one.tried) })
	defer tried()
	for {
		err := s.runOnce(ctx, one, tried)
		if ctx.Err() != nil {
			if err != nil {
				s.log.Error("ending a service", "service", one.name, "error", err)
			}
			return
		}
		err = cmp.Or(err, errors.New("it ended by itself"))
		s.note(one, nil, err)
		tried()
		s.log.Error("a service does not run and is tried again soon; the others go on", "service", one.name, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryService):
		}
	}
}

// runOnce runs a service until it fails or ctx ends.
func (s *services) runOnce(ctx context.Context, one *service, started func()) (err error) {
	s.mu.Lock()
	file, models := one.file, one.models
	s.mu.Unlock()
	r, err := s.start(ctx, file, models)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop.run()) }()
	s.note(one, r, nil)
	started()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if file.Listen != "" {
		go r.page.Run(ctx)
	}
	return r.Run(ctx)
}

func (s *services) note(one *service, r *runner, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.runner, one.err = r, err
}

// awaitTried waits until every service has been started or could not be, for a limited time.
func (s *services) awaitTried(ctx context.Context) {
	late := time.After(stopWait)
	for _, one := range s.present() {
		select {
		case <-one.tried:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// present is a copy of the list.
func (s *services) present() []service {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]service, len(s.list))
	for i, one := range s.list {
		list[i] = *one
	}
	return list
}

// alive returns an error if all services hang. One that hangs is no reason to restart the process, because the others would be held up.
func (s *services) alive() error {
	var errs []error
	for _, one := range s.present() {
		if one.runner == nil {
			return nil
		}
		err := one.runner.Alive()
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("service %s: %w", one.name, err))
	}
	return errors.Join(errs...)
}

// end stops all services at once.
func (s *services) end() {
	list := s.present()
	for _, one := range list {
		one.stop()
	}
	for _, one := range list {
		<-one.stopped
	}
}

// reload reads all files again. If one of them has a mistake, nothing changes for any service.
func (s *services) reload(ctx context.Context) bool {
	next, err := s.readAgain()
	if err != nil {
		s.log.Error("the new configuration is bad: all services keep the running one", "error", err)
		s.tell(ctx, "the configuration was not reloaded for any service, because it has mistakes: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		return false
	}
	var added, removed []string
	for _, one := range s.present() {
		if !slices.ContainsFunc(next, func(n reread) bool { return n.file.Service.Name == one.name }) {
			s.remove(one.name)
			s.shares.forget(one.name)
			removed = append(removed, one.name)
			s.log.Warn("a service was taken out: its balancer keeps the weights that it has. If those of before are wanted, add the service again "+
				"and run quell release before it is taken out", "service", one.name)
		}
	}
	for _, n := range next {
		if s.renew(ctx, n) {
			added = append(added, n.file.Service.Name)
		}
	}
	s.mu.Lock()
	s.bad = nil
	slices.SortStableFunc(s.list, func(a, b *service) int { return place(next, a.name) - place(next, b.name) })
	s.mu.Unlock()
	s.log.Info("reloaded", "services", len(next), "added", strings.Join(added, ","), "removed", strings.Join(removed, ","))
	return true
}

// reread is what a reload has read of one service.
type reread struct {
	file   *config.File
	models *model.Models
}

func place(next []reread, name string) int {
	return slices.IndexFunc(next, func(n reread) bool { return n.file.Service.Name == name })
}

// readAgain reads all files, and checks that each service can take over what it says.
func (s *services) readAgain() ([]reread, error) {
	fleet, err := Drivers().LoadFleet(s.path)
	if err == nil {
		err = fleet.Err()
	}
	if err == nil && !fleet.Several() {
		err = fmt.Errorf("%s no longer names several services: restart the controller to apply this", s.path)
	}
	if err == nil {
		err = checkWeb(fleet.Shared)
	}
	if err != nil {
		return nil, err
	}
	if changed := config.Changed(s.shared, fleet.Shared); len(changed) > 0 {
		if needs := config.NeedsRestart(fleet.Shared, changed, nil); needs != "" {
			s.log.Warn(needs)
		}
	}
	fleet.Keep(s.shared)
	list := make([]reread, 0, len(fleet.Services))
	var errs []error
	for _, file := range fleet.Services {
		models, err := loadModels(file, s.log)
		if err == nil {
			err = s.check(file, models)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file.Path, err))
		}
		list = append(list, reread{file, models})
	}
	return list, errors.Join(errs...)
}

// check returns an error if a service cannot run with a configuration.
func (s *services) check(file *config.File, models *model.Models) error {
	for _, one := range s.present() {
		if one.name == file.Service.Name && one.runner != nil && !restarts(one.file, file) {
			return one.runner.check(file, models)
		}
	}
	return controller.Check(table.All, file.Service, models, file.Learns())
}

// restarts returns whether a service must be started again to apply a changed configuration.
func restarts(running, file *config.File) bool {
	return len(config.RestartsOwn(file, config.ControllerProcess, config.Changed(running, file))) > 0
}

// renew applies what was read of one service, and starts the service if it does not run. It returns whether the service is a new one.
func (s *services) renew(ctx context.Context, n reread) (added bool) {
	name := n.file.Service.Name
	for _, one := range s.present() {
		if one.name != name {
			continue
		}
		if one.runner != nil && !restarts(one.file, n.file) {
			err := one.runner.apply(ctx, one.file, n.file, n.models)
			if err == nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, kept := range s.list {
					if kept.name == name {
						kept.file, kept.models = n.file, n.models
					}
				}
				return false
			}
			s.log.Error("reloading a service failed: it is started again", "service", name, "error", err)
		}
		s.remove(name)
		s.launch(ctx, n.file, n.models)
		return false
	}
	s.launch(ctx, n.file, n.models)
	return true
}

// remove stops a service. What it set at its balancer stays.
func (s *services) remove(name string) {
	s.mu.Lock()
	i := slices.IndexFunc(s.list, func(one *service) bool { return one.name == name })
	one := s.list[i]
	s.list = slices.Delete(s.list, i, i+1)
	s.mu.Unlock()
	one.stop()
	<-one.stopped
}

// tell records an event in every service's journal.
func (s *services) tell(ctx context.Context, text string) {
	for _, one := range s.present() {
		if one.runner != nil {
			one.runner.Note(ctx, text)
		}
	}
}

// tellBad is what is wrong with a service's file, for people.
func tellBad(bad config.BadService) string {
	return fmt.Sprintf("%s does not run: %v", cmp.Or(bad.Name, bad.Path), bad.Err)
}
