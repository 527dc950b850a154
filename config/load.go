package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/setting"
)

// Load reads and parses a service's configuration file.
func (t Drivers) Load(path string) (*File, error) {
	f, err := t.LoadAgent(path)
	if err == nil && f.Local() {
		return nil, errLocal(path)
	}
	return f, err
}

// LoadAgent reads a configuration file for an agent. The file may describe no service and have only agent.policy.
func (t Drivers) LoadAgent(path string) (*File, error) {
	data, err := yaml.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return t.Parse(path, data)
}

// errLocal is the error if a process other than an agent reads a file that describes no service.
func errLocal(path string) error {
	return &quell.UserError{Err: fmt.Errorf("%s names no service: it is for `quell agent` and `quell status --local` only; set service "+
		"and slo for more", path)}
}

// Parse reads a configuration. name is the file's path: errors use it, and relative paths in the file start at its folder. Mistakes
// are returned as a *quell.UserError that wraps Problems.
func (t Drivers) Parse(name string, data []byte) (*File, error) {
	f, d, _ := t.parse(name, data)
	if err := d.Err(); err != nil {
		return nil, err
	}
	if len(f.Services) > 0 {
		return nil, errSeveral(f)
	}
	f.resolve(filepath.Dir(name))
	return f, nil
}

// parse reads as much of a configuration as it can. ok is false if the file is not valid YAML. Paths are as the file has them.
func (t Drivers) parse(name string, data []byte) (f *File, d *setting.Decoder, ok bool) {
	return t.parseOf(nil, name, data)
}

// parseOf is parse for the file of a service that shares its controller with others; shared is nil if it does not.
func (t Drivers) parseOf(shared *File, name string, data []byte) (f *File, d *setting.Decoder, ok bool) {
	file := t.Defaults()
	file.Path = name
	d = yaml.NewDecoder(name)
	if !d.Decode(data, t.fileKeys(&file)) {
		return &file, d, false
	}
	if shared != nil {
		file.join(d, shared)
	}
	file.values, file.places = map[string]string{}, d
	file.keys = t.fileKeys(&file)
	file.keys.Currents("", file.values)
	t.require(d, &file)
	checkBounds(d, "", file.Service.Group) // the group of a fixed list gets these values from the list's length below
	file.derive(d)
	checkFile(d, &file)
	return &file, d, true
}

// Problem makes a problem of the value of a key. Its place is the key's place in the file, or that of the nearest section around
// it.
func (f *File) Problem(key, text string) setting.Problem {
	if f.shared != nil && isShared(key) {
		return f.shared.Problem(key, text)
	}
	at := f.places.PlaceOf(key)
	return setting.Problem{File: f.Path, Line: at.Line, Column: at.Column, Text: text}
}

// Token returns a secret that a configuration has as text or in a file; "" if it has none.
func Token(token, file string) (string, error) {
	if token != "" || file == "" {
		return token, nil
	}
	data, err := yaml.ReadFile(file)
	if err != nil {
		return "", err
	}
	token = strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, "\r\n") {
		return "", &quell.UserError{Err: setting.Problems{{File: file, Text: "must hold one line, the token"}}}
	}
	return token, nil
}

// require reports missing keys of the service. If the file describes no service, it reports a missing agent.policy, and keys that
// need a service.
func (t Drivers) require(d *setting.Decoder, f *File) {
	if d.Given("services") {
		for _, name := range t.fileKeys(f).Names() {
			if !slices.Contains(sharedSections, name) && d.Given(name) {
				d.Refuse(name, "write it into the file of the service", "belongs to one service, and this file names several")
			}
		}
		return
	}
	service := required(ServiceKeys(&f.Service))
	if !d.Given("agent.policy") || slices.ContainsFunc(service, func(k setting.Key) bool { return d.Given(k.Name) }) {
		d.Require(service...)
		return
	}
	for _, name := range t.fileKeys(f).Names() {
		if name != "agent" && name != "data" && d.Given(name) {
			d.Refuse(name, "remove it, or set service and slo", "is of no use to a file that names no service")
		}
	}
}

func required(table setting.Table) setting.Table {
	return slices.DeleteFunc(table, func(k setting.Key) bool { return !k.Required })
}

// derive sets the defaults that follow from other keys.
func (f *File) derive(d *setting.Decoder) {
	_, reads := f.Scaler.Settings.(onlyLists)
	f.Service.Group.Fixed = reads
	if members, _ := f.Scaler.Listed(); len(members) > 0 {
		// In a fixed group no instance can be added or removed, and leaving one without traffic would save nothing.
		f.Service.Group.Min, f.Service.Group.Max, f.Service.Group.Initial, f.Service.Group.Fixed = len(members), len(members), 0, true
	}
	if s, ok := f.Balancer.Settings.(interface{ Distributes() quell.Scheduling }); ok {
		f.Service.Scheduling = s.Distributes()
	}
	if s, ok := f.Balancer.Settings.(interface{ IdleFirst() bool }); ok {
		f.Service.IdleFirst = s.IdleFirst()
	}
	if s, ok := f.Scaler.Settings.(interface{ Follow(quell.Service) }); ok {
		s.Follow(f.Service)
	}
	if f.Probe.From == "" {
		f.Probe.From = FromController
		if f.Balancer.probes() {
			f.Probe.From = FromBalancer
		}
	}
	if !d.Given("probe.timeout") {
		f.Probe.Timeout = min(f.Probe.Timeout, f.Service.Sampling)
	}
	if f.Train.Resource == "" {
		f.Train.Resource = table.All.Resource(f.Service.Policy)
	}
	if !d.Given("train.max_repeat") {
		f.Train.MaxRepeat = max(f.Train.MaxRepeat, f.Train.Repeat)
	}
}

// resolve puts the given folder in front of relative paths.
func (f *File) resolve(folder string) {
	if f.shared == nil {
		f.Bus.StoreDir, f.Bus.Keyring = filepath.Join(f.Data, "bus"), filepath.Join(f.Data, "credentials")
	}
	if len(f.Services) == 0 {
		f.Bus.Credentials = strings.ReplaceAll(f.Bus.Credentials, serviceHolder, f.Service.Name)
		f.Bus.Join = strings.ReplaceAll(f.Bus.Join, serviceHolder, f.Service.Name)
	}
	for _, path := range f.paths() {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(folder, *path)
		}
	}
}

// paths are the paths of a file, those of its drivers included. A service among several has those of the shared file, too, which are
// absolute.
func (f *File) paths() []*string {
	paths := []*string{
		&f.Data, &f.Bus.StoreDir, &f.Bus.Keyring, &f.Bus.Credentials, &f.Bus.Join, &f.Bus.ProofToken, &f.Agent.Root, &f.Agent.Probing.Folder,
		&f.Agent.Policy.Records, &f.Bus.TokenFile, &f.Bus.TLS.CA, &f.Bus.TLS.Cert, &f.Bus.TLS.Key, &f.Probe.TokenFile, &f.Web,
		&f.Agent.Secure.Cert, &f.Agent.Secure.Key, &f.Agent.Secure.ClientCA,
		&f.KEDA.TLS.CA, &f.KEDA.TLS.Cert, &f.KEDA.TLS.Key,
	}
	if f.Trained() != "" {
		paths = append(paths, &f.Models)
	}
	for _, driver := range []any{f.Balancer.Settings, f.Scaler.Settings} {
		if s, ok := driver.(interface{ Files(data string) []*string }); ok {
			paths = append(paths, s.Files(f.Data)...)
		}
	}
	for _, s := range f.Agent.Servers {
		if s.Settings != nil {
			paths = append(paths, s.Settings.Files()...)
		}
	}
	return paths
}

// CheckInstance returns a *quell.UserError if the file lists its instances and this one is not among them, because the controller
// would ignore its readings.
func (f *File) CheckInstance(id string) error {
	members, _ := f.Scaler.Listed()
	ids := quell.IDs(members)
	if len(ids) == 0 || slices.Contains(ids, id) {
		return nil
	}
	return &quell.UserError{Err: fmt.Errorf("%s: scaler.instances lists no %q%s: correct the agent's instance, or add it to the list",
		f.Path, setting.Shorten(id), setting.Suggest(id, ids))}
}
