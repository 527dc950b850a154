package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/loadgen"
)

// Streaming measures frame delays (ICE, section VI): how long after its time a streaming server sends a frame. Each host of a lab has one
// server with a fixed number of blocking workers, HAProxy divides the streams among them, and a neighbour may use the first host.
type Streaming struct {
	Program  string // path of the quell binary
	Dir      string // folder of configurations and logs
	Prefix   string // prefix of the lab's names
	Machines Machines
	Scenario *scenario.Scenario // its hosts; a frame is a request of its first class; its first neighbour
	Streams  int                // for each host on average
	Every    time.Duration      // between two frames of a stream
	Wait     time.Duration      // how long a frame's storage takes to answer, which blocks its worker
	WarmUp   time.Duration      // frames due before are not counted
	Run      time.Duration      // how long frames are counted
}

// StreamCell is one measurement.
type StreamCell struct {
	Workers     int  `json:"workers"` // of each server
	Weight      int  `json:"weight"`  // of the first host; the others have 100
	Interfering bool `json:"interfering"`
}

// StreamResult is what was measured of the first host in one cell.
type StreamResult struct {
	StreamCell
	Streams int           `json:"streams"` // to the first host
	Frames  int64         `json:"frames"`  // that it sent
	Unsent  float64       `json:"unsent"`  // frames that were due and not sent, as a share of those due
	DelayMS quell.Latency `json:"delay_ms"`
	Others  quell.Latency `json:"others_delay_ms,omitzero"` // of the other hosts
}

// StreamPlan is what is measured: the delays for each number of workers without and with a neighbour (Figure 8), and for each weight
// with a neighbour (Figure 9).
type StreamPlan struct {
	Workers []int // in increasing order
	Weights []int
}

// Measure measures the cells of a plan with the given function. The weights are measured with two numbers of workers: the one that is
// best without the neighbour, and the one that is best beside it.
func (p StreamPlan) Measure(measure func(StreamCell) (StreamResult, error)) (results []StreamResult, err error) {
	done := map[StreamCell]StreamResult{}
	one := func(c StreamCell) error {
		if _, known := done[c]; known {
			return nil
		}
		r, err := measure(c)
		if err == nil {
			done[c], results = r, append(results, r)
		}
		return err
	}
	var chosen []int
	for _, interfering := range []bool{false, true} {
		var tried []StreamResult
		for _, workers := range p.Workers {
			c := StreamCell{workers, fullWeight, interfering}
			if err := one(c); err != nil {
				return results, err
			}
			tried = append(tried, done[c])
		}
		chosen = append(chosen, fewest(tried))
	}
	for _, workers := range chosen {
		for _, weight := range p.Weights {
			if err := one(StreamCell{workers, weight, true}); err != nil {
				return results, err
			}
		}
	}
	return results, nil
}

// fullWeight is the weight of hosts without interference.
const fullWeight = 100

// fewest is the smallest number of workers whose mean delay is near the least.
func fewest(results []StreamResult) int {
	const near = 1.1
	delay := func(r StreamResult) float64 {
		ms, ok := r.DelayMS.Of(quell.Mean)
		if !ok {
			return 0 // it sent no frames, and Measure reports an error before
		}
		return ms * (1 + r.Unsent)
	}
	least := delay(results[0])
	for _, r := range results {
		least = min(least, delay(r))
	}
	for _, r := range results {
		if delay(r) <= near*least {
			return r.Workers
		}
	}
	return results[0].Workers
}

// Cell measures one cell.
func (s *Streaming) Cell(ctx context.Context, c StreamCell) (result StreamResult, err error) {
	name := fmt.Sprintf("workers%d-weight%d", c.Workers, c.Weight)
	if c.Interfering {
		name += "-interfering"
	}
	g := &group{sc: s.Scenario, dir: filepath.Join(s.Dir, name)}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return result, err
	}
	var servers []*kernel.Worker
	defer func() { err = errors.Join(err, g.Stop(), s.end(servers)) }()
	for _, h := range s.Scenario.Hosts {
		place, err := kernel.PlaceOf(s.Prefix, h.ID, kernel.Instance)
		if err != nil {
			return result, err
		}
		server := &kernel.Worker{Place: place, Dir: filepath.Join(g.dir, h.ID), Port: labInstance, Program: s.Program, Workers: c.Workers,
			Wait: s.Wait}
		if err := server.Start(ctx); err != nil {
			return result, fmt.Errorf("the streaming server on %s: %w", h.ID, err)
		}
		servers = append(servers, server)
	}
	if err := s.balance(ctx, g, c.Weight); err != nil {
		return result, err
	}
	if c.Interfering {
		if err := s.interfere(); err != nil {
			return result, err
		}
	}
	counted := countFrom{at: time.Now().Add(s.WarmUp), delays: loadgen.NewRecorder()}
	clients := &viewers{first: s.Scenario.Hosts[0].ID, into: counted.into}
	err = clients.watch(ctx, g.url+s.request(), s.Streams*len(s.Scenario.Hosts), s.frame().Network, s.Every, s.WarmUp+s.Run)
	if err := errors.Join(err, ctx.Err(), g.exited()); err != nil {
		return result, err
	}
	return clients.result(c, counted.delays, s.Every, s.Run)
}

// countFrom counts the delays of frames that come after a time.
type countFrom struct {
	at     time.Time
	delays *loadgen.Recorder
}

func (c countFrom) into(now time.Time) *loadgen.Recorder {
	if now.Before(c.at) {
		return nil
	}
	return c.delays
}

// frame is the class of request that a frame is.
func (s *Streaming) frame() scenario.Class { return s.Scenario.Workload.Classes[0] }

// request is the path of a stream.
func (s *Streaming) request() string {
	f := s.frame()
	return fmt.Sprintf("/stream?every=%v&cpu=%v&bytes=%d", s.Every, f.CPU, f.Network)
}

// interfere starts the scenario's first neighbour on the first host.
func (s *Streaming) interfere() error {
	n := Neighbours(s.Scenario)[0]
	return s.Machines.Interfere(s.Scenario.Hosts[0].ID, map[quell.Resource]float64{n.Resource: n.Use})
}

// end ends the servers and the neighbour.
func (s *Streaming) end(servers []*kernel.Worker) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	errs := []error{s.Machines.Interfere(s.Scenario.Hosts[0].ID, nil)}
	for _, server := range servers {
		errs = append(errs, server.Stop(ctx))
	}
	return errors.Join(errs...)
}

// balance starts HAProxy and waits until it serves.
func (s *Streaming) balance(ctx context.Context, g *group, weight int) error {
	place, err := kernel.PlaceOf(s.Prefix, "", kernel.Balancer)
	if err != nil {
		return err
	}
	address := fmt.Sprintf("%s:%d", place.Address(), labTraffic)
	var servers strings.Builder
	for i, h := range s.Scenario.Hosts {
		if i > 0 {
			weight = fullWeight
		}
		fmt.Fprintf(&servers, "  server %s 10.77.%d.2:%d weight %d\n", h.ID, i+1, labInstance, weight)
	}
	path := filepath.Join(g.dir, "haproxy.cfg")
	if err := os.WriteFile(path, []byte(fmt.Sprintf(streamingTemplate, address, servers.String())), 0o644); err != nil {
		return err
	}
	binary, err := FindProgram("haproxy")
	if err != nil {
		return err
	}
	if err := g.launch("haproxy", exec.Command(binary, "-db", "-f", path), place.Start); err != nil {
		return err
	}
	g.url = "http://" + address
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return g.await(ctx, startWait, 20*time.Millisecond, func(context.Context) error {
		resp, err := client.Get(g.url + "/healthz")
		if err != nil {
			return fmt.Errorf("the balancer does not serve: %w", err)
		}
		return resp.Body.Close()
	})
}

// streamingTemplate has no checks, because nothing but the neighbour may differ between two cells.
const streamingTemplate = `global
  maxconn 8000
  nbthread 1
  hard-stop-after 1s
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
frontend clients
  bind %s
  default_backend streams
backend streams
  balance roundrobin
  http-response set-header X-Quell-Instance %%[srv_name]
%s`

// viewers are the clients of one cell.
type viewers struct {
	first string                            // the host that is measured
	into  func(time.Time) *loadgen.Recorder // what counts the frames of a time; nil: they are not counted

	mu      sync.Mutex
	streams int // to the first host
}

// watch opens that many streams, evenly over the time between two frames, and reads them for the given time.
func (v *viewers) watch(ctx context.Context, url string, streams int, bytes int64, every, length time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	defer client.CloseIdleConnections()
	errs := make([]error, streams)
	var open sync.WaitGroup
	for i := range streams {
		open.Go(func() {
			if tick.Sleep(ctx, time.Duration(i)*every/time.Duration(streams)) {
				errs[i] = v.view(ctx, &client, url, bytes)
			}
		})
	}
	open.Wait()
	return errors.Join(errs...)
}

// view reads one stream until ctx ends.
func (v *viewers) view(ctx context.Context, client *http.Client, url string, bytes int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return unless(ctx, err)
	}
	defer resp.Body.Close()
	host := resp.Header.Get(loadgen.InstanceHeader)
	if resp.StatusCode != http.StatusOK || host == "" {
		return fmt.Errorf("opening a stream: %s from host %q", resp.Status, host)
	}
	if host == v.first {
		v.mu.Lock()
		v.streams++
		v.mu.Unlock()
	}
	err = kernel.ReadDelays(resp.Body, bytes, func(delay time.Duration) {
		if delays := v.into(time.Now()); delays != nil {
			delays.Record(loadgen.Sample{Finished: delay, Instance: host, Status: resp.StatusCode})
		}
	})
	if err == nil && ctx.Err() == nil {
		err = errors.New("a stream ended by itself")
	}
	return unless(ctx, err)
}

// unless drops an error that the end of ctx caused.
func unless(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// result sums a cell up.
func (v *viewers) result(c StreamCell, delays *loadgen.Recorder, every, run time.Duration) (StreamResult, error) {
	r := StreamResult{StreamCell: c, Streams: v.streams}
	first, ok := delays.Instance(v.first)
	if !ok {
		return r, fmt.Errorf("%s sent no frame in %v with %d workers at weight %d: measure for longer", v.first, run, c.Workers, c.Weight)
	}
	r.Frames, r.DelayMS = first.Requests, first.LatencyMS
	if due := float64(v.streams) * run.Seconds() / every.Seconds(); due > 0 {
		r.Unsent = max(0, 1-float64(r.Frames)/due)
	}
	for _, id := range delays.Instances() {
		if id != v.first {
			other, _ := delays.Instance(id)
			r.Others = other.LatencyMS // HAProxy gives equal weights equal shares, so any other host tells
		}
	}
	return r, nil
}
