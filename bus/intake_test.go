package bus

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell/bus/subjects"
)

func TestAllowances(t *testing.T) {
	a := newAllowances(func(instance string) bool { return instance[0] == 'i' })
	data := make([]byte, maxReading)
	message := func(instance string, size int) *nats.Msg {
		return &nats.Msg{Subject: "quell.video.reading.agent." + subjects.Escape(instance), Data: data[:size]}
	}
	now := epoch
	taken := func(instance string, n, size int, want error) (count int) {
		for range n {
			if err := a.take(message(instance, size), now); err == nil {
				count++
			} else if !errors.Is(err, want) {
				t.Fatal(err)
			}
		}
		return count
	}
	if n := taken("i1", 1000, maxReading, errTooMany); n > readingsAtOnce/maxReading {
		t.Errorf("%d large readings were taken in at once", n)
	}
	if n := taken("i2", 100, 1000, nil); n != 100 {
		t.Errorf("a flood on another subject leaves %d of 100", n)
	}
	var strangers int
	for i := range 1000 {
		strangers += taken(fmt.Sprint("ghost", i), 1, maxReading, errStrangers)
	}
	if strangers > strangersAtOnce/maxReading {
		t.Errorf("%d large readings of unknown instances were taken in at once", strangers)
	}
	now = now.Add(time.Second)
	if n := taken("i1", 1000, 1000, errTooMany); n < 500 || n > 1000 {
		t.Errorf("%d small readings a second later", n)
	}
	now = now.Add(-time.Hour) // a clock that is set back must not stop readings
	taken("i1", 1, 1000, errTooMany)
	now = now.Add(time.Second)
	if n := taken("i1", 100, 1000, errTooMany); n != 100 {
		t.Errorf("%d of 100 after the clock was set back", n)
	}
}

// A sender with the shortest period, 10 ms, is never limited if it sends one reading in each period.
func TestAnHonestSenderIsNeverHeldUp(t *testing.T) {
	a, now := newAllowances(nil), epoch
	for range 10_000 {
		m := &nats.Msg{Subject: "quell.video.reading.balancer.i1", Data: make([]byte, 8<<10)}
		if err := a.take(m, now); err != nil {
			t.Fatal(err)
		}
		now = now.Add(10 * time.Millisecond)
	}
}

func TestSubjectsAreForgotten(t *testing.T) {
	gone := map[string]bool{}
	a := newAllowances(func(instance string) bool { return !gone[instance] })
	a.most = 100
	for i := range 3 * a.most {
		name := fmt.Sprint("i", i)
		if err := a.take(&nats.Msg{Subject: "quell.video.reading.agent." + name}, epoch); err != nil {
			t.Fatal(err)
		}
		gone[name] = i > 10
	}
	if len(a.bySubject) > a.most {
		t.Errorf("%d subjects are remembered", len(a.bySubject))
	}
}
