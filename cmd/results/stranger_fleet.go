package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/report"
)

// strangerFleet is a service that runs already on machines of the lab: HAProxy and nginx, with files that a person wrote. Quell is put
// beside it as docs/guide.md says. It is told nothing of the lab.
type strangerFleet struct {
	set     strangerSettings
	front   front
	dir     string
	program string // of quell
	lab     *kernel.Lab
	names   []string      // of the servers; the n-th is on host hn
	servers []frontServer // the same, with addresses
	edge    kernel.Place
	client  kernel.Place
	running []strangerProgram

	// Processes hold the one end of a pipe, and this process the other one. So they end when this process is killed.
	pipe, end *os.File
}

// strangerProgram is a program that the fleet started.
type strangerProgram struct {
	name string
	cmd  *exec.Cmd
}

// strangerMachines is the number of servers.
const strangerMachines = 3

func newStrangerFleet(program string, with front, set strangerSettings) (f *strangerFleet, err error) {
	program, err = filepath.Abs(program)
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		return nil, fmt.Errorf("the fleet needs the program (make build): %w", err)
	}
	f = &strangerFleet{set: set, front: with, program: program}
	if f.pipe, f.end, err = os.Pipe(); err != nil {
		return nil, err
	}
	if f.dir, err = os.MkdirTemp("", "qs-"); err != nil {
		return nil, errors.Join(err, f.close())
	}
	var hosts []kernel.Host
	for n := range strangerMachines {
		f.names = append(f.names, fmt.Sprintf("web-%d", n+1))
		hosts = append(hosts, kernel.Host{ID: hostOf(n), Network: set.Link, Cores: set.Cores, DiskIOPS: set.DiskIOPS})
	}
	f.lab, err = kernel.New(kernel.Options{Prefix: fmt.Sprintf("qs%d", os.Getpid()), Dir: filepath.Join(f.dir, "lab"), Hosts: hosts})
	if err == nil {
		f.edge, err = f.lab.Place("", kernel.Balancer)
	}
	if err == nil {
		f.client, err = f.lab.Place("", kernel.Client)
	}
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func hostOf(n int) string { return fmt.Sprintf("h%d", n+1) }

func (f *strangerFleet) close() error {
	var errs []error
	for _, p := range f.running {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, p := range f.running {
		stuck := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
		_ = p.cmd.Wait()
		stuck.Stop()
	}
	if f.lab != nil {
		errs = append(errs, f.lab.Close())
	}
	if f.dir != "" {
		errs = append(errs, os.RemoveAll(f.dir))
	}
	return errors.Join(append(errs, f.end.Close(), f.pipe.Close())...)
}

// launch starts a program at a place. What it says is in a file of its name.
func (f *strangerFleet) launch(at kernel.Place, name, program string, args ...string) error {
	log, err := os.Create(filepath.Join(f.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(program, args...)
	c.Dir, c.Stdout, c.Stderr = f.dir, log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	lifeline.Give(c, f.pipe)
	if err := at.Start(c); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	f.running = append(f.running, strangerProgram{name, c})
	return nil
}

// keep writes a file.
func (f *strangerFleet) keep(name, text string) (path string, err error) {
	path = filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// frontProgram is the name under which the front runs.
const frontProgram = "front"

// serve starts the service on each machine and the front, as they were before Quell came.
func (f *strangerFleet) serve() error {
	var servers []frontServer
	for n, name := range f.names {
		place, err := f.lab.Place(hostOf(n), kernel.Instance)
		if err != nil {
			return err
		}
		servers = append(servers, frontServer{name, fmt.Sprintf("%v:80", place.Address())})
		if err := os.MkdirAll(filepath.Join(f.dir, name), 0o755); err != nil {
			return err
		}
		if err := f.serveFrom(place, name); err != nil {
			return err
		}
	}
	f.servers = servers
	return f.front.serve(f, servers)
}

// serveFrom starts nginx, or the service of dynamic work, on a machine.
func (f *strangerFleet) serveFrom(place kernel.Place, name string) error {
	size := f.set.File
	if f.set.Work != "" {
		size = strangerDisk
	}
	content := make([]byte, size)
	_, _ = rand.Read(content) // it never fails
	file, err := f.keep(filepath.Join(name, "file"), string(content))
	if err != nil {
		return err
	}
	if f.set.Work != "" {
		return f.launch(place, "work-"+name, f.program, "lab", "work", "--listen", fmt.Sprintf("%v:80", place.Address()), "--disk", file,
			"--memory")
	}
	text := strings.NewReplacer("ADDRESS", place.Address().String(), "DIR", filepath.Join(f.dir, name), "NAME", name).Replace(strangerNginx)
	path, err := f.keep(filepath.Join(name, "nginx.conf"), text)
	if err != nil {
		return err
	}
	return f.launch(place, "nginx-"+name, "nginx", "-c", path)
}

// strangerDisk is how many bytes the file has that the service of dynamic work reads.
const strangerDisk = 16 << 20

func (f *strangerFleet) socket() string { return filepath.Join(f.dir, "haproxy.sock") }

// logs is where HAProxy sends its log.
func (f *strangerFleet) logs() string { return "127.0.0.1:5514" }

const strangerNginx = `daemon off;
master_process off;
user root;
pid DIR/nginx.pid;
error_log DIR/error.log;
events {}
http {
  access_log off;
  client_body_temp_path DIR; proxy_temp_path DIR; fastcgi_temp_path DIR; uwsgi_temp_path DIR; scgi_temp_path DIR;
  server {
    listen ADDRESS:80;
    root DIR;
    add_header Served-By NAME;
    location = /healthz { return 200; }
    location = /status { stub_status; }
  }
}
`

const strangerHAProxy = `global
  stats socket %s mode 660 level admin expose-fd listeners
  log %s local0
  maxconn 4000

defaults
  mode http
  log global
  option httplog
  timeout connect 1s
  timeout client 30s
  timeout server 30s

frontend web
  bind %v:8080
  default_backend app

backend app
  balance %s
  option httpchk GET /healthz
%s`

// quellConfig is the configuration on the machine of a server, or, with the name "", on HAProxy's.
func (f *strangerFleet) quellConfig(name string) (path string, err error) {
	var instances strings.Builder
	probe := "127.0.0.1:8087"
	for n, id := range f.names {
		place, err := f.lab.Place(hostOf(n), kernel.Instance)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&instances, "    - {id: %s, address: \"%v:80\", probe: \"%v:8087\"}\n", id, place.Address(), place.Address())
		if id == name {
			probe = fmt.Sprintf("%v:8087", place.Address())
		}
	}
	agent := ""
	if host, _, ok := strings.Cut(probe, ":"); ok && f.front.agent != "" {
		agent = fmt.Sprintf(f.front.agent, host)
	}
	own := filepath.Join("quell", name)
	policy := ""
	if f.set.Fast != "" {
		policy = fmt.Sprintf("policy: {name: prima, fast: %s}\n", f.set.Fast)
	}
	set, in := f.set, func(name string) string { return filepath.Join(f.dir, "quell", name) }
	return f.keep(own+".yaml", fmt.Sprintf(strangerQuell, cmp.Or(set.Metric, quell.Mean), set.Threshold, set.Sampling, policy,
		in(name+"-data"), f.edge.Address(), in(name+".creds"), f.front.quell(f), instances.String(), probe, in("token"), set.capacity(), agent))
}

// capacity is what Quell is told of each machine.
func (s strangerSettings) capacity() string {
	text := fmt.Sprintf("network: %gMbps", s.Link/1e6)
	if s.Cores > 0 {
		text += fmt.Sprintf(", cpu: %g", s.Cores)
	}
	if s.DiskIOPS > 0 {
		text += fmt.Sprintf(", disk: %g", s.DiskIOPS)
	}
	return text
}

const strangerQuell = `service: shop
slo: {metric: %s, threshold: %v}
sampling: %v
%sdata: %s
listen: off
bus: {listen: "%v:4222", credentials: %s}
balancer:
%sscaler:
  kind: fixed
  instances:
%sprobe: {listen: %q, token_file: %s}
agent:
  interface: eth0
  capacity: {%s}
%s`

// watch starts Quell beside the fleet.
func (f *strangerFleet) watch() error {
	if _, err := f.keep(filepath.Join("quell", "token"), rand.Text()+rand.Text()+"\n"); err != nil {
		return err
	}
	control, err := f.quellConfig("edge")
	if err != nil {
		return err
	}
	if err := f.launch(f.edge, "controller", f.program, "controller", "--config", control); err != nil {
		return err
	}
	for n, name := range f.names {
		place, err := f.lab.Place(hostOf(n), kernel.Instance)
		if err != nil {
			return err
		}
		own, err := f.quellConfig(name)
		if err != nil {
			return err
		}
		if err := f.credential(control, name); err != nil {
			return err
		}
		if err := f.launch(place, "agent-"+name, f.program, "agent", "--config", own, "--instance", name); err != nil {
			return err
		}
	}
	return nil
}

// credential makes the credential of a machine's agent, as soon as the controller has made its keys.
func (f *strangerFleet) credential(control, name string) error {
	out := filepath.Join(f.dir, "quell", name+".creds")
	var said []byte
	for range 50 {
		var err error
		if said, err = exec.Command(f.program, "credentials", "sensor", name, "--config", control, "--out", out).CombinedOutput(); err == nil {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("a credential for %s: %s", name, said)
}

// quell runs a command beside HAProxy.
func (f *strangerFleet) quell(command string, args ...string) (said []byte, err error) {
	said, err = f.output(exec.Command(f.program, append([]string{command, "--since", "2h", "--json", "--config",
		filepath.Join(f.dir, "quell", "edge.yaml")}, args...)...))
	if err != nil {
		return nil, fmt.Errorf("quell %s: %w", command, err)
	}
	return said, nil
}

// output runs a program beside the front.
func (f *strangerFleet) output(c *exec.Cmd) (said []byte, err error) {
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	if err = f.edge.Start(c); err == nil {
		err = c.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, complaint.String())
	}
	return out.Bytes(), nil
}

// predictions says how far plans' predictions held.
func (f *strangerFleet) predictions() (report.Predictions, error) {
	said, err := f.quell("report")
	if err != nil {
		return report.Predictions{}, err
	}
	var r report.Report
	err = json.Unmarshal(said, &r)
	return r.Predictions, err
}

// journal reads all plans.
func (f *strangerFleet) journal() (entries []bus.Entry, err error) {
	said, err := f.quell("journal", "--all")
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(said))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e bus.Entry
		if err := strictjson.Decode(lines.Bytes(), &e); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, lines.Err()
}
