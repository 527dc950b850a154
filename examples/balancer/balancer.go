// Package balancer is an example of a driver outside Quell: docs/write-a-balancer-driver.md walks through it. The balancer is Traefik with
// its file provider: Traefik watches a file with the addresses and weights of servers.
package balancer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/setting"
)

// Kind is what a configuration names: balancer.kind: traefik.
var Kind = balancer.Kind{Name: "traefik", About: "a Traefik that watches a file", Defaults: func() balancer.Settings { return &settings{} }}

type settings struct{ file, service string }

func (s *settings) Keys() setting.Table {
	return setting.Table{setting.Req("traefik", setting.Table{
		setting.Req("file", setting.Text(&s.file), "file that Traefik watches, which has nothing but this service"),
		setting.Req("service", setting.Text(&s.service), "name of the service in Traefik"),
	}, "where Traefik reads its servers")}
}

func (s *settings) Check(*setting.Decoder) {}

func (s *settings) Where() string { return s.file }

func (s *settings) New(in balancer.Service) (balancer.Driver, error) {
	return balancer.Made(open(s.file, s.service, in))
}

// most is the largest weight: Traefik has whole ones.
const most = 100

// driver writes the file that Traefik reads, and remembers in another one which server stands for which instance.
type driver struct {
	file, service string
	drain         time.Duration
	members       []quell.Member // the instances of a fixed group

	mu      sync.Mutex
	memory  balancer.Memory[server]
	servers []*server // nil: Quell has set nothing yet
}

// server stands for an instance.
type server struct {
	ID      string    `json:"id"`
	Address string    `json:"address"`
	Probe   string    `json:"probe,omitempty"` // where it is probed: the balancer does not need it, the controller reads it back
	Share   float64   `json:"share"`
	Drain   bool      `json:"drain,omitempty"`
	Held    bool      `json:"held,omitempty"`
	Since   time.Time `json:"since,omitzero"` // when the drain began
}

// document is what Traefik reads.
type document struct {
	HTTP struct {
		Services map[string]service `yaml:"services"`
	} `yaml:"http"`
}

type service struct {
	LoadBalancer struct {
		Servers []target `yaml:"servers"`
	} `yaml:"loadBalancer"`
}

type target struct {
	URL    string `yaml:"url"`
	Weight *int   `yaml:"weight,omitempty"` // nil: Traefik takes 1
}

// open reads what an earlier controller remembered.
func open(file, service string, in balancer.Service) (d *driver, err error) {
	d = &driver{file: file, service: service, drain: in.Drain, members: in.Members, memory: balancer.Memory[server]{
		Path: filepath.Join(in.Data, "traefik.json"), About: "which servers Traefik has", Remedy: "delete it, and the next plan writes it",
		Valid: func(s *server) bool { return s.ID != "" && s.Address != "" }, Logger: in.Logger,
	}}
	d.servers, err = d.memory.Read()
	return d, err
}

// Apply writes the file if anything has changed.
func (d *driver) Apply(_ context.Context, backends []quell.Backend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := balancer.CheckBackends(backends); err != nil {
		return err
	}
	before := map[string]*server{}
	for _, s := range d.servers {
		before[s.ID] = s
	}
	next := make([]*server, len(backends))
	for i, b := range backends {
		next[i] = &server{ID: b.ID, Address: b.Address, Probe: b.Probe, Share: b.Weight, Drain: b.Draining, Held: b.Held}
		if b.Draining {
			next[i].Share, next[i].Since = 0, time.Now()
			if s := before[b.ID]; s != nil && s.Drain {
				next[i].Since = s.Since
			}
		}
	}
	text, err := d.text(next)
	if err == nil {
		err = d.write(text)
	}
	if err != nil {
		return err
	}
	d.servers = next
	d.memory.Keep(next)
	return nil
}

// text is the content of the file. A server without a share is left out.
func (d *driver) text(servers []*server) ([]byte, error) {
	shares := make([]float64, len(servers))
	for i, s := range servers {
		shares[i] = s.Share
	}
	var to service
	for i, weight := range balancer.Whole(shares, most) {
		if weight > 0 {
			to.LoadBalancer.Servers = append(to.LoadBalancer.Servers, target{"http://" + servers[i].Address, new(weight)})
		}
	}
	var all document
	all.HTTP.Services = map[string]service{d.service: to}
	return yaml.Marshal(all)
}

// write replaces the file in one step, so that Traefik never reads half of it.
func (d *driver) write(text []byte) error {
	if old, err := os.ReadFile(d.file); err == nil && bytes.Equal(old, text) {
		return nil
	}
	next := d.file + ".next"
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return err
	}
	return os.Rename(next, d.file)
}

// State says what is in force. Until Quell has set anything, that is what the file has. Traefik does not check servers here, so a
// connection shows whether one answers.
func (d *driver) State(ctx context.Context) (states []quell.BackendState, err error) {
	d.mu.Lock()
	servers := slices.Clone(d.servers)
	d.mu.Unlock()
	text, err := os.ReadFile(d.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if servers == nil {
		states, err = d.found(text)
	} else {
		states, err = d.inForce(servers, text)
	}
	if err != nil {
		return nil, err
	}
	var checks sync.WaitGroup
	for i := range states {
		checks.Go(func() {
			s := &states[i]
			if err := answers(ctx, s.Address); err != nil {
				s.Healthy, s.Health = false, err.Error()
			}
		})
	}
	checks.Wait()
	return states, nil
}

// found lists what people wrote into the file. A server has the id of the instance at its address; another one's id is its address.
func (d *driver) found(text []byte) (states []quell.BackendState, err error) {
	var all document
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", d.file, err)
	}
	sum := 0.0
	for _, t := range all.HTTP.Services[d.service].LoadBalancer.Servers {
		address, weight := strings.TrimPrefix(t.URL, "http://"), 1.0
		if t.Weight != nil {
			weight = float64(*t.Weight)
		}
		b := quell.Backend{ID: address, Address: address, Weight: weight}
		for _, m := range d.members {
			if m.Address == address {
				b.ID, b.Probe = m.ID, m.Probe
			}
		}
		sum += weight
		states = append(states, quell.BackendState{Backend: b, Healthy: true, Foreign: true})
	}
	for i := range states {
		states[i].Weight /= max(1, sum)
	}
	return states, nil
}

// inForce lists what Quell set. If somebody has changed the file, nothing of that counts as being there, and the controller applies it
// again. Traefik does not tell which requests are open, so a drain takes its whole time.
func (d *driver) inForce(servers []*server, text []byte) ([]quell.BackendState, error) {
	want, err := d.text(servers)
	if err != nil {
		return nil, err
	}
	states := make([]quell.BackendState, len(servers))
	for i, s := range servers {
		states[i] = quell.BackendState{Healthy: true, Backend: quell.Backend{ID: s.ID, Address: s.Address, Probe: s.Probe, Weight: s.Share,
			Draining: s.Drain, Held: s.Held}}
		if !bytes.Equal(text, want) {
			states[i].Address = ""
		}
		if s.Drain && time.Since(s.Since) < d.drain {
			states[i].InFlight = 1
		}
	}
	return states, nil
}

// answers returns why nothing answers at an address. Without one nobody knows, and the instance counts as healthy.
func answers(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err == nil {
		err = conn.Close()
	}
	return err
}
