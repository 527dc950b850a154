package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/setting"
)

// sharedSections are what the services of one controller share. They are in the file that names the services, and in no service's own file.
var sharedSections = []string{"services", "data", "listen", "web_config", "bus", "agent"}

// Fleet is what a configuration describes for one controller: one service, or several that share a bus, the agents and their machines.
type Fleet struct {
	Shared   *File        // the file itself; it describes the service, or it names the services
	Services []*File      // in the order of the file, each as if it were alone; without those that are bad
	Bad      []BadService // services that cannot run as they are
}

// BadService is a file of a service that has mistakes.
type BadService struct {
	Path string
	Name string // of the service; empty if it cannot be read
	Err  error
}

// Several returns whether the file names services that have files of their own.
func (f *Fleet) Several() bool { return len(f.Shared.Services) > 0 }

// Err returns all mistakes in the files of services, nil if there are none.
func (f *Fleet) Err() error {
	var errs []error
	for _, bad := range f.Bad {
		errs = append(errs, bad.Err)
	}
	return errors.Join(errs...)
}

// LoadFleet reads a configuration file, and the files of the services that it names. An error means that the file itself has mistakes, or
// every service has. Mistakes in the files of some services are in Fleet.Bad, and do not concern the others.
func (t Drivers) LoadFleet(path string) (*Fleet, error) {
	data, err := yaml.ReadFile(path)
	if err != nil {
		return nil, err
	}
	shared, d, _ := t.parse(path, data)
	if err := d.Err(); err != nil {
		return nil, err
	}
	if err := shared.settle(filepath.Dir(path)); err != nil {
		return nil, err
	}
	fleet := &Fleet{Shared: shared}
	if !fleet.Several() {
		fleet.Services = []*File{shared}
		return fleet, nil
	}
	t.addServices(fleet, func(*setting.Decoder, *File) {})
	if len(fleet.Services) == 0 {
		return nil, fleet.Err()
	}
	return fleet, nil
}

// CheckFleet is Check for a configuration that may name several services. All mistakes in all files are in the error.
func (t Drivers) CheckFleet(path string) (*Fleet, error) {
	shared, err := t.Check(path)
	fleet := &Fleet{Shared: shared}
	switch {
	case shared == nil:
		return nil, err
	case !fleet.Several():
		fleet.Services = []*File{shared}
		return fleet, err
	case err != nil:
		return fleet, err
	}
	if err := shared.absolute(); err != nil {
		return nil, err
	}
	t.addServices(fleet, t.check)
	return fleet, errors.Join(shared.places.Err(), fleet.Err())
}

// addServices reads the files of a fleet's services, checks each of them further with check, and checks that the services agree.
func (t Drivers) addServices(fleet *Fleet, check func(*setting.Decoder, *File)) {
	for _, path := range fleet.Shared.servicePaths() {
		data, err := yaml.ReadFile(path)
		if err != nil {
			fleet.Bad = append(fleet.Bad, BadService{Path: path, Err: err})
			continue
		}
		f, d, ok := t.parseOf(fleet.Shared, path, data)
		if ok {
			f.resolve(filepath.Dir(path))
			check(d, f)
			agree(d, f, fleet.Services)
		}
		if err := d.Err(); err != nil {
			fleet.Bad = append(fleet.Bad, BadService{Path: path, Name: f.Service.Name, Err: err})
			continue
		}
		fleet.Services = append(fleet.Services, f)
	}
}

// servicePaths are the files of the services. Relative paths start at the folder of the file that names them.
func (f *File) servicePaths() (paths []string) {
	for _, path := range f.Services {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(f.Path), path)
		}
		paths = append(paths, path)
	}
	return paths
}

// settle resolves the paths of a file. If it names services, the paths become absolute, because the services' files may be in other
// folders.
func (f *File) settle(folder string) error {
	f.resolve(folder)
	if len(f.Services) == 0 {
		return nil
	}
	return f.absolute()
}

func (f *File) absolute() error {
	for _, path := range f.paths() {
		if *path == "" || filepath.IsAbs(*path) {
			continue
		}
		whole, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = whole
	}
	return nil
}

// join gives a service what it shares with the others, and refuses settings of its own for that.
func (f *File) join(d *setting.Decoder, shared *File) {
	for _, name := range sharedSections {
		if d.Given(name) {
			d.Refuse(name, "remove it here", "is set in %s for all of its services", shared.Path)
		}
	}
	if name := f.Service.Name; name != "" && strings.Trim(name, ".") == "" {
		d.Refuse("service", "", "%q cannot be the name of a folder", name)
	}
	f.inherit(shared)
}

// sharedPlaces returns the decoder of the file that has the shared sections; d is that of the service's own file.
func (f *File) sharedPlaces(d *setting.Decoder) *setting.Decoder {
	if f.shared != nil {
		return f.shared.places
	}
	return d
}

// OneOfSeveral returns whether the service shares its controller with others.
func (f *File) OneOfSeveral() bool { return f.shared != nil }

// agree checks that a service can run beside others: names, balancers and logs are different, and what one agent does for all is the same.
func agree(d *setting.Decoder, f *File, others []*File) {
	if f.Scaler.Changes() && d.Sound("scaler") {
		d.Refuse("scaler", "list the machines (kind: fixed), or give this service a controller of its own",
			"services that share a controller share machines, and kind %s starts instances of its own", f.Scaler.Kind)
	}
	for _, other := range others {
		agreeWith(d, f, other)
	}
}

func agreeWith(d *setting.Decoder, f, other *File) {
	if f.Service.Name == other.Service.Name && d.Sound("service") {
		d.Refuse("service", "give each service a name of its own", "%s is the service of %s, too", f.Service.Name, other.placeOf("service"))
		return
	}
	for _, thing := range f.Balancer.manages() {
		if slices.Contains(other.Balancer.manages(), thing) {
			d.Refuse("balancer", "name what belongs to this service alone", "%s is used for service %s, too (%s)", thing, other.Service.Name,
				other.placeOf("balancer"))
		}
	}
	if at, theirs := f.KEDA.Listen, other.KEDA.Listen; overlap(at, theirs) && d.Sound("keda.listen") {
		d.Refuse("keda.listen", "give each service a port of its own", "%s cannot be listened at beside %s of service %s (%s)",
			at, theirs, other.Service.Name, other.placeOf("keda.listen"))
	}
	for _, same := range []struct{ key, own, others string }{
		{"sampling", setting.FormatDuration(f.Service.Sampling), setting.FormatDuration(other.Service.Sampling)},
		{"probe.listen", f.Probe.Listen, other.Probe.Listen},
		{"probe.token", f.Probe.Token, other.Probe.Token},
		{"probe.token_file", f.Probe.TokenFile, other.Probe.TokenFile},
		{"probe.capacity", fmt.Sprint(f.Probe.Capacity), fmt.Sprint(other.Probe.Capacity)},
	} {
		if same.own != same.others && d.Sound(same.key) {
			d.Refuse(same.key, "write the same in both", "must be as in %s, because one agent on a machine serves all services",
				other.placeOf(same.key))
		}
	}
	agreeOnMachines(d, f, other)
}

// overlap returns whether only one process can listen at two addresses; empty ones are none.
func overlap(a, b string) bool {
	_, port, err := net.SplitHostPort(a)
	_, other, failed := net.SplitHostPort(b)
	return err == nil && failed == nil && port == other && port != "0" && (a == b || unspecified(a) || unspecified(b))
}

// agreeOnMachines checks that a machine that two services list has one agent: the same id, the same address of the probe server.
func agreeOnMachines(d *setting.Decoder, f, other *File) {
	theirs, _ := other.Scaler.Listed()
	own, _ := f.Scaler.Listed()
	for i, m := range own {
		for _, o := range theirs {
			at := fmt.Sprintf("scaler.instances[%d].probe", i)
			switch {
			case m.Probe == "" || o.Probe == "" || !d.Sound(at):
			case m.ID == o.ID && m.Probe != o.Probe:
				d.Refuse(at, "a machine has one id and one agent", "%s has the agent %s in service %s", m.ID, o.Probe, other.Service.Name)
			case m.ID != o.ID && m.Probe == o.Probe:
				d.Refuse(at, "a machine has one id and one agent", "%s is the agent of %s in service %s", m.Probe, o.ID, other.Service.Name)
			}
		}
	}
}

// placeOf is the place of a key in the file, for messages about another file.
func (f *File) placeOf(key string) string {
	return fmt.Sprintf("%s:%d", f.Path, f.places.PlaceOf(key).Line)
}

// manages names what a balancer's driver changes or listens at, so that no two services use the same.
func (b Balancer) manages() []string {
	if s, ok := b.Settings.(interface{ Manages() []string }); ok {
		return s.Manages()
	}
	return []string{b.Kind + " " + b.Settings.Where()}
}

// Contacts is what commands need to reach the controllers of a configuration's services.
type Contacts struct {
	Services []*File      // only Path, Service.Name, Bus and Data are valid
	Bad      []BadService // services whose name cannot be read
	Mistakes setting.Problems
	Several  bool
}

// LoadContacts reads what a command needs to reach the controllers of a configuration's services: the sections service, bus and data.
// Mistakes in the rest of a file are returned with it but do not stop the command, because pause and override must work while somebody is
// still editing the file. An error means that service or bus cannot be read, and lists every mistake. Of several services, one whose file
// cannot be read does not concern the others.
func (t Drivers) LoadContacts(path string) (*Contacts, error) {
	data, err := yaml.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, mistakes, err := t.parsePart(path, data, contactPart)
	if err != nil {
		return nil, err
	}
	c := &Contacts{Mistakes: mistakes}
	if len(f.Services) == 0 {
		c.Services = []*File{f}
		return c, nil
	}
	c.Several = true
	if err := f.absolute(); err != nil {
		return nil, err
	}
	for _, path := range f.servicePaths() {
		data, err := yaml.ReadFile(path)
		var service *File
		var more setting.Problems
		if err == nil {
			service, more, err = t.parsePart(path, data, []string{"service"})
		}
		if err == nil && service.Service.Name == "" {
			err = errLocal(path)
		}
		if err != nil {
			c.Bad = append(c.Bad, BadService{Path: path, Err: err})
			continue
		}
		service.join(yaml.NewDecoder(path), f)
		c.Services, c.Mistakes = append(c.Services, service), append(c.Mistakes, more...)
	}
	return c, nil
}

// errSeveral is the error if something that is for one service reads a file that names several.
func errSeveral(f *File) error {
	return &quell.UserError{Err: fmt.Errorf("%s names several services: give the file of one of them, as in %s", f.Path,
		cmp.Or(f.servicePaths()[0], f.Path))}
}

// Keep makes the services use the shared sections of an earlier reading of the file, because a process applies changes of them only when
// it is restarted.
func (f *Fleet) Keep(shared *File) {
	for _, s := range f.Services {
		s.inherit(shared)
	}
}

// inherit gives a service the shared sections.
func (f *File) inherit(shared *File) {
	name := f.Service.Name
	f.shared, f.Services = shared, nil
	f.Data, f.Listen, f.Bus, f.Agent = filepath.Join(shared.Data, "services", name), shared.Listen, shared.Bus, shared.Agent
	f.Web = shared.Web
	f.Bus.Own = name
	f.Bus.Credentials = strings.ReplaceAll(f.Bus.Credentials, serviceHolder, name)
	f.Bus.Join = strings.ReplaceAll(f.Bus.Join, serviceHolder, name)
}

// RestartsOwn is Restarts without keys of the shared sections.
func RestartsOwn(f *File, process string, changed []string) []string {
	return slices.DeleteFunc(Restarts(f, process, changed), isShared)
}

// isShared returns whether a key is in one of the shared sections.
func isShared(key string) bool {
	return slices.ContainsFunc(sharedSections, func(section string) bool { return setting.Within(key, section) })
}
