package pods

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// cluster plays the API server.
type cluster struct {
	pods   map[string]*Pod
	ours   map[string]bool // by container
	writes int
	asked  int
	fails  error
}

func (c *cluster) Pod(name string) (Pod, error) {
	pod := c.pods[name]
	if pod == nil {
		return Pod{}, fmt.Errorf("gone: %w", fs.ErrNotExist)
	}
	return *pod, nil
}

func (c *cluster) of(path string) (*Pod, *Container) {
	parts := strings.Split(path, "/")
	pod := c.pods[parts[1]]
	for i := range pod.Containers {
		if pod.Containers[i].Name == parts[2] {
			return pod, &pod.Containers[i]
		}
	}
	return pod, nil
}

func (c *cluster) Limit(path string) (int64, uint64, error) {
	if c.pods[strings.Split(path, "/")[1]] == nil {
		return 0, 0, fs.ErrNotExist
	}
	pod, one := c.of(path)
	digest := fnv.New64a()
	_, _ = digest.Write([]byte(pod.UID))
	return one.Limit, digest.Sum64(), nil
}

func (c *cluster) SetLimit(path string, _, to int64) error {
	if c.asked++; c.fails != nil {
		return c.fails
	}
	_, one := c.of(path)
	one.Limit, c.ours[path] = to, true
	c.writes++
	return nil
}

func (c *cluster) Ours(path string) bool { return c.ours[path] }

// play is a limiter with a cluster and a clock.
type play struct {
	*cluster
	*Limiter
	clock time.Time
}

func newPlay(t interface{ TempDir() string }, pods ...*Pod) *play {
	p := &play{cluster: &cluster{pods: map[string]*Pod{}, ours: map[string]bool{}}, clock: time.Unix(1000, 0)}
	for _, pod := range pods {
		p.pods[pod.Name] = pod
	}
	p.Limiter = New(p.cluster, t.TempDir(), func() time.Time { return p.clock })
	return p
}

// cap asks for the limit of one pod; 0: none.
func (p *play) cap(pod string, processors float64) error {
	if processors == 0 {
		return p.Apply(nil)[pod]
	}
	return p.Apply([]quell.Limit{{Instance: pod, Resource: quell.CPU, Value: processors, Unit: "processors"}})[pod]
}

func web(containers ...Container) *Pod {
	return &Pod{Namespace: "shop", Name: "web", UID: "1", Containers: containers}
}

// A pod is written at most once in the pace, and not for little.
func TestPace(t *testing.T) {
	p := newPlay(t, web(Container{"web", 100, 2000}))
	for i, step := range []struct {
		after time.Duration
		cap   float64
		want  int64
	}{
		{0, 1, 1000},
		{time.Second, 0.5, 1000},      // too soon
		{9 * time.Second, 0.5, 500},   // now
		{time.Minute, 0.52, 500},      // too little
		{time.Minute, 0.6, 600},       //
		{time.Second, 0, 600},         // too soon, too
		{10 * time.Second, 0, 2000},   // put back
		{time.Minute, 5, 2000},        // more than its own limit is none
		{time.Minute, 0.0001, 100},    // what it requests
		{10 * time.Second, 1.9, 1900}, //
	} {
		p.clock = p.clock.Add(step.after)
		err := p.cap("web", step.cap)
		if (err != nil) != (step.cap == 0.0001) || p.pods["web"].Containers[0].Limit != step.want {
			t.Errorf("step %d: limit %d, want %d (%v)", i, p.pods["web"].Containers[0].Limit, step.want, err)
		}
	}
	if p.writes != 6 {
		t.Errorf("%d writes", p.writes)
	}
	if err := p.Close(); err != nil || p.pods["web"].Containers[0].Limit != 2000 {
		t.Errorf("at the end: %v, %+v", err, p.pods["web"])
	}
}

// While the API server does not answer, one container is tried for all, and not each time. At the end it is tried in any case.
func TestServerIsAway(t *testing.T) {
	p := newPlay(t)
	var list []quell.Limit
	for i := range 50 {
		name := fmt.Sprint("web", i)
		p.pods[name] = &Pod{Namespace: "shop", Name: name, UID: name, Containers: []Container{{"web", 100, 2000}}}
		list = append(list, quell.Limit{Instance: name, Resource: quell.CPU, Value: 1, Unit: "processors"})
	}
	p.Apply(list)
	p.clock, p.fails, p.asked = p.clock.Add(time.Minute), context.DeadlineExceeded, 0
	for i := range list {
		list[i].Value = 0.5
	}
	for range 5 {
		if failed := p.Apply(list); len(failed) != 50 || p.asked != 1 {
			t.Fatalf("%d failed, %d requests", len(failed), p.asked)
		}
		p.clock = p.clock.Add(time.Second)
	}
	p.fails = nil
	if err := p.Close(); err != nil || p.pods["web49"].Containers[0].Limit != 2000 {
		t.Errorf("at the end: %v, %+v", err, p.pods["web49"])
	}
	// What is refused for one is not refused for all.
	p.clock, p.fails, p.asked = p.clock.Add(time.Minute), errors.New("no right"), 0
	for range 3 {
		p.Apply(list)
	}
	if p.asked != 50 {
		t.Errorf("%d requests", p.asked)
	}
}

func TestPodsComeAndGo(t *testing.T) {
	p := newPlay(t, web(Container{"web", 100, 2000}))
	if err := p.cap("web", 1); err != nil {
		t.Fatal(err)
	}
	delete(p.pods, "web")
	if err := p.cap("web", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a pod that is gone: %v", err)
	}
	p.pods["web"] = &Pod{Namespace: "shop", Name: "web", UID: "2", Containers: []Container{{"web", 100, 1000}}}
	p.ours = map[string]bool{}
	if err := p.cap("web", 0.5); err != nil || p.pods["web"].Containers[0].Limit != 500 {
		t.Errorf("another one of its name: %v, %+v", err, p.pods["web"])
	}
	p.pods["web"].Refused = "not any more"
	p.clock = p.clock.Add(time.Minute)
	if err := p.cap("web", 0.5); err == nil || p.pods["web"].Containers[0].Limit != 1000 {
		t.Errorf("a pod that is refused later: %v, %+v", err, p.pods["web"])
	}
}

// Each container stays between its request and its own limit, and together they get what the pod is to have, as far as that is possible.
func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []Container
		for i := range rapid.IntRange(1, 5).Draw(t, "containers") {
			request := rapid.Int64Range(0, 4000).Draw(t, "request")
			list = append(list, Container{fmt.Sprint(i), request, request + rapid.Int64Range(1, 4000).Draw(t, "beyond")})
		}
		if room(list) == 0 {
			return
		}
		most := sum(list, func(c Container) int64 { return c.Limit })
		wanted, got := rapid.Float64Range(1, 40_000).Draw(t, "millis"), map[string]float64{}
		divide(list, wanted, func(name string, millis float64) { got[name] = millis })
		total := 0.0
		for _, c := range list {
			millis, set := got[c.Name]
			if !set {
				millis = float64(c.Limit)
			}
			if millis < float64(c.least())-1e-9 || millis > float64(c.Limit)+1e-9 {
				t.Fatalf("%+v gets %v", c, millis)
			}
			total += millis
		}
		if want := min(max(wanted, float64(sum(list, Container.least))), float64(most)); total < want-1e-6 || total > want+1e-6 {
			t.Fatalf("%+v get %v, not %v", list, total, want)
		}
	})
}
