package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
)

// clusterRole is the environment variable that makes this program a part of the measured cluster.
const clusterRole = "QUELL_RESULTS_ROLE"

const clusterService = "shop"

// clusterTask is the task of a part.
type clusterTask struct {
	Dir    string  `json:",omitempty"`
	Config string  `json:",omitempty"` // configuration file of a server
	URL    string  `json:",omitempty"`
	Leaf   string  `json:",omitempty"`
	Agents int     `json:",omitempty"`
	Bits   float64 `json:",omitempty"` // of a link, per second
}

var clusterRoles = map[string]func(clusterTask) error{"nats": serveNATS, "intake": takeIn, "agents": playAgents, "use": reportUse}

// playClusterRole is what a part's process does until its standard input is closed.
func playClusterRole(role string, args []string) error {
	play, ok := clusterRoles[role]
	if !ok || len(args) != 1 {
		return fmt.Errorf("%s=%s: no such role", clusterRole, role)
	}
	var task clusterTask
	if err := json.Unmarshal([]byte(args[0]), &task); err != nil {
		return err
	}
	return play(task)
}

func untilAsked() { _, _ = os.Stdin.Read(make([]byte, 1)) }

func clusterRing(dir string) auth.Keyring {
	return auth.Keyring{Dir: filepath.Join(dir, "credentials")}
}

func serveNATS(task clusterTask) error {
	opts, err := server.ProcessConfigFile(task.Config)
	if err != nil {
		return err
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	untilAsked()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// sending identifies one reading: by its agent, and by when it was published, in nanoseconds since 1970.
type sending struct {
	Agent int
	At    int64
}

// intakeReport is what the intake saw.
type intakeReport struct {
	Got      []arrival
	Rejected int
}

type arrival struct {
	sending
	Delay time.Duration
}

func agentName(i int) string { return fmt.Sprintf("i-%05d", i) }

// takeIn receives readings as a controller does: with the same subscription and checks.
func takeIn(task clusterTask) error {
	ring := clusterRing(task.Dir)
	conn, err := bus.Connect(bus.Options{URL: task.URL, Name: "controller", Persistent: true, Validate: (*quell.Reading).Validate,
		Identify: ring.Identify(auth.Grant{Role: auth.Controller, Service: clusterService, ID: "controller"})})
	if err != nil {
		return err
	}
	defer conn.Close()
	known := map[string]int{}
	for i := range task.Agents {
		known[agentName(i)] = i
	}
	var report intakeReport
	stop, err := conn.SubscribeReadings(clusterService, bus.Intake{
		Accept: func(r quell.Reading, _ time.Time) {
			at := r.Observation.At
			report.Got = append(report.Got, arrival{sending{known[r.Instance], at.UnixNano()}, time.Since(at)})
		},
		Reject: func(error) { report.Rejected++ },
		Known:  func(instance string) bool { _, ok := known[instance]; return ok },
	})
	if err != nil {
		return err
	}
	fmt.Println(1)
	untilAsked()
	stop()
	return writeReport(task.Dir, "intake", report)
}

// fleetReport is what the agents did.
type fleetReport struct {
	Sent []published
	Back []int64 // when a connection was up again, after it was down or at another server, in nanoseconds since 1970
}

type published struct {
	sending
	Refused bool `json:",omitempty"`
}

// fleet is many agents in one process, each with a connection and a credential of its own.
type fleet struct {
	task  clusterTask
	conns []*bus.Conn

	mu     sync.Mutex
	report fleetReport
}

// dialers is how many agents connect at the same time when the fleet starts.
const dialers = 64

func playAgents(task clusterTask) error {
	f := &fleet{task: task, conns: make([]*bus.Conn, task.Agents)}
	if err := f.connect(); err != nil {
		return err
	}
	stop := make(chan struct{})
	var work sync.WaitGroup
	began := time.Now()
	for i := range f.conns {
		work.Go(func() { f.publish(i, began, stop) })
	}
	work.Go(func() { f.watch(stop) })
	untilAsked()
	close(stop)
	work.Wait()
	for _, conn := range f.conns {
		work.Go(conn.Close)
	}
	work.Wait()
	return writeReport(task.Dir, "agents", &f.report)
}

func (f *fleet) connect() error {
	errs := make([]error, len(f.conns))
	free := make(chan struct{}, dialers)
	var work sync.WaitGroup
	for i := range f.conns {
		free <- struct{}{}
		work.Go(func() {
			f.conns[i], errs[i] = f.agent(i)
			<-free
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

func (f *fleet) agent(i int) (*bus.Conn, error) {
	url := f.task.URL
	if i%throughLeaf == 0 {
		url = f.task.Leaf
	}
	text, err := clusterRing(f.task.Dir).Issue(auth.Grant{Role: auth.Sensor, Service: clusterService, ID: agentName(i)}, 0)
	if err != nil {
		return nil, err
	}
	return bus.Connect(bus.Options{URL: url, Name: "agent " + agentName(i), Persistent: true, Validate: (*quell.Reading).Validate,
		Identify: func() (auth.Identity, error) { return auth.Identity{Credential: text}, nil }})
}

// publish sends an agent's reading in each period. Different agents send at different moments of the period.
func (f *fleet) publish(i int, began time.Time, stop <-chan struct{}) {
	next := began.Add(clusterPeriod * time.Duration(i) / time.Duration(len(f.conns)))
	for ; ; next = next.Add(clusterPeriod) {
		select {
		case <-stop:
			return
		case <-time.After(time.Until(next)):
		}
		r := typicalReading(i)
		err := f.conns[i].PublishReading(r)
		f.mu.Lock()
		f.report.Sent = append(f.report.Sent, published{sending{i, r.Observation.At.UnixNano()}, err != nil})
		f.mu.Unlock()
	}
}

// watch prints how many agents are connected, and records when one reconnects.
func (f *fleet) watch(stop <-chan struct{}) {
	since := make([]time.Time, len(f.conns))
	for first := true; ; first = false {
		up := 0
		for i, conn := range f.conns {
			link := conn.Link()
			if !link.Up || !conn.Connected() {
				continue
			}
			up++
			if !first && !link.Since.Equal(since[i]) {
				f.report.Back = append(f.report.Back, link.Since.UnixNano())
			}
			since[i] = link.Since
		}
		fmt.Println(up)
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// typicalReading is what an agent of a machine with one network card and one disk sends.
func typicalReading(i int) quell.Reading {
	name, steal := agentName(i), float64(i%7)/100
	return quell.Reading{
		Service: clusterService, Instance: name, Source: quell.FromAgent, Sender: name,
		Observation: quell.Observation{
			At: time.Now().UTC(), WindowS: clusterPeriod.Seconds(),
			Utilization: map[quell.Resource]float64{quell.CPU: 0.3127, quell.Network: 0.4183, quell.Disk: 0.0712, quell.Memory: 0.5561},
			CPU:         &quell.CPUTime{User: 0.2214, System: 0.0763, IOWait: new(0.0121), Steal: steal},
			Counters:    map[string]float64{"throttled": 0.0312, "network_tx_bytes_per_s": 48_211_713.4, "network_rx_bytes_per_s": 2_190_334.7},
			TCP:         map[string]float64{"retransmitted_share": 0.00312, "rtt_ms": 1.417},
			Pressure:    map[string]float64{"cpu": 0.0214, "io": 0.0031, "memory": 0},
		},
	}
}

func reportPath(dir, part string) string { return filepath.Join(dir, part+".json") }

func writeReport(dir, part string, report any) error {
	data, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return os.WriteFile(reportPath(dir, part), data, 0o600)
}

func readReport(dir, part string, into any) error {
	data, err := os.ReadFile(reportPath(dir, part))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
