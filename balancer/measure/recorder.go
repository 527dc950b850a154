package measure

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/internal/tick"
)

// Request is a request that ended, as a balancer's log tells it.
type Request struct {
	Verdict     Verdict
	Class       string        // "" if classes are not measured
	First, Took time.Duration // to the first and to the last byte; the one that the objective is about counts for a Response
	Connect     time.Duration // of a new connection
	Connected   bool          // whether there was one
	Open        time.Duration // how long the instance had the request
}

// Recorder makes readings from a log that has each request when it ends. Requests are counted by the address of their server, because which
// instance that is may be known later. It is safe for concurrent use.
type Recorder struct {
	in      balancer.Service
	publish func([]quell.Reading)
	pace    Pace
	watch   balancer.ClassWatch
	long    map[string]*Stretch // by instance, since the sampling period began
	length  time.Duration       // of the windows since then

	mu       sync.Mutex
	servers  map[string]*recorded
	unserved int64 // requests without an instance, since the sampling period began
}

type recorded struct {
	*Tally
	open time.Duration // summed time of all requests
}

// longestOpen is for how long a request counts as open at most, or the sampling period if that is longer. All of its time counts in the
// window in which it ends: on average that is right, but a download of an hour would stand for hundreds of requests in progress.
const longestOpen = time.Minute

// mostServers limits memory. It is exceeded only by servers of other services.
const mostServers = 16384

// NewRecorder makes a recorder; Run starts it.
func NewRecorder(in balancer.Service, publish func([]quell.Reading)) *Recorder {
	r := &Recorder{in: in, publish: publish, long: map[string]*Stretch{}, servers: map[string]*recorded{}}
	r.pace.Set(in.Period, in.Fast)
	return r
}

// Pace changes how often readings are made.
func (r *Recorder) Pace(period, fast time.Duration) { r.pace.Set(period, fast) }

// Count counts a request at the server that had it.
func (r *Recorder) Count(server string, q Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.of(server)
	if t == nil {
		return
	}
	if q.Connected {
		t.Connect(q.Connect)
	}
	t.open += min(q.Open, max(longestOpen, r.in.Period))
	if r.in.FirstByte {
		q.Took = q.First
	}
	t.Finish(q.Verdict, q.Class, q.Took)
	if q.Verdict == Nothing {
		return
	}
	t.Arrived++
	t.Answered++
	if q.Class != "" {
		t.Class(q.Class).Arrived++
	}
}

// Judge counts a request at the last server that had it: its target and how it ended say its class and its verdict.
func (r *Recorder) Judge(server, target string, e Ending, q Request) {
	q.Class = r.in.Classes.Of(target)
	e.Aside, e.FirstByte = r.in.Classes.Aside(q.Class), r.in.FirstByte
	q.Verdict = Judge(e)
	if e.endless() {
		q.Open = 0
	}
	r.Count(server, q)
}

// Moved counts an attempt that failed before the server had the request.
func (r *Recorder) Moved(server string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.of(server); t != nil {
		t.Moved++
	}
}

// Unserved counts a request for which there was no instance.
func (r *Recorder) Unserved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unserved++
}

// of returns the counts of a server; nil if there are too many.
func (r *Recorder) of(server string) *recorded {
	if r.servers[server] == nil && len(r.servers) < mostServers {
		r.servers[server] = &recorded{Tally: New(r.in.Classes.Names()...)}
	}
	return r.servers[server]
}

// Run publishes readings at the end of every period until ctx ends. instances returns the addresses of each instance; ended is called after
// each sampling period.
func (r *Recorder) Run(ctx context.Context, instances func(context.Context) map[string][]string, ended func(context.Context)) {
	began := time.Now()
	for tick.Sleep(ctx, tick.Until(time.Now(), r.pace.Shortest())) {
		now := time.Now()
		ends := !r.pace.Fast() || r.pace.Ends(now)
		r.window(instances(ctx), now, now.Sub(began), ends)
		if began = now; ends {
			ended(ctx)
		}
	}
}

// window publishes the readings of a window, and at the end of a sampling period also those of the whole period.
func (r *Recorder) window(instances map[string][]string, now time.Time, length time.Duration, ends bool) {
	servers := r.take()
	var short, whole []quell.Reading
	arrived := map[string]int64{}
	for _, id := range slices.Sorted(maps.Keys(instances)) {
		t := r.join(servers, instances[id])
		meanOpen := t.open.Seconds() / length.Seconds()
		if r.pace.Fast() {
			short = append(short, r.reading(id, true, func() (quell.Reading, error) { return t.Reading(now.UTC(), length, meanOpen) }))
		}
		if r.long[id] == nil {
			r.long[id] = &Stretch{}
		}
		r.long[id].Add(t.Tally, length, meanOpen)
		for class, n := range t.Arrivals() {
			arrived[class] += n
		}
		if ends {
			whole = append(whole, r.reading(id, false, func() (quell.Reading, error) { return r.long[id].Reading(now.UTC()) }))
		}
	}
	if len(short) > 0 {
		r.publish(short)
	}
	for _, mistake := range r.watch.Add(r.in.Classes, arrived) {
		r.in.Logger.Warn(mistake)
	}
	if r.length += length; ends {
		whole = Unserved(whole, None(r.in.Name, r.in.Balancer, now, r.length), r.takeUnserved())
		clear(r.long)
		r.length = 0
		r.publish(whole)
	}
}

// takeUnserved ends the count of requests without an instance.
func (r *Recorder) takeUnserved() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, r.unserved = r.unserved, 0
	return n
}

// take ends the present window.
func (r *Recorder) take() map[string]*recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	servers := r.servers
	r.servers = map[string]*recorded{}
	return servers
}

// join sums the counts of all addresses of an instance.
func (r *Recorder) join(servers map[string]*recorded, addresses []string) recorded {
	sum := recorded{Tally: New(r.in.Classes.Names()...)}
	for _, a := range addresses {
		if t := servers[a]; t != nil {
			sum.Merge(t.Tally)
			sum.open += t.open
		}
	}
	return sum
}

func (r *Recorder) reading(id string, fast bool, read func() (quell.Reading, error)) quell.Reading {
	made, err := read()
	if err != nil {
		r.in.Logger.Error("histogram not encoded", "error", err)
	}
	made.Service, made.Instance, made.Sender, made.Fast = r.in.Name, id, r.in.Balancer, fast
	return made
}
