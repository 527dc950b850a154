package bus

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func reading(instance string) quell.Reading {
	rate := 47.6
	return quell.Reading{Service: "video", Instance: instance, Source: quell.FromAgent, Sender: "host 1", Observation: quell.Observation{
		At: epoch, WindowS: 10, RequestRate: &rate, Utilization: map[quell.Resource]float64{quell.Network: 0.42}}}
}

// into accepts readings, and fails the test at every invalid one.
func into(t testing.TB, accept func(quell.Reading, time.Time)) Intake {
	return Intake{Accept: accept, Reject: func(err error) { t.Error(err) }}
}

type received struct {
	reading quell.Reading
	at      time.Time
}

func TestReadingsTravel(t *testing.T) {
	s := startServer(t, ServerOptions{Listen: "127.0.0.1:0", Token: "t"})
	clock := epoch.Add(time.Hour) // differs from the sender's
	controller := connect(t, Options{Server: s, Now: func() time.Time { return clock }})
	agent := connect(t, Options{URL: s.URL(), Token: "t"})

	got := make(chan received, 10)
	stop, err := controller.SubscribeReadings("my video.eu", into(t, func(r quell.Reading, at time.Time) { got <- received{r, at} }))
	if err != nil {
		t.Fatal(err)
	}
	for _, instance := range []string{"10.0.0.1:80", "i 2", "*"} {
		want := reading(instance)
		want.Service = "my video.eu"
		if err := agent.PublishReading(want); err != nil {
			t.Fatal(err)
		}
		if r := receive(t, got); !reflect.DeepEqual(r.reading, want) || !r.at.Equal(clock) {
			t.Errorf("got %+v at %s, want %+v at %s", r.reading, r.at, want, clock)
		}
	}
	none := reading(quell.NoInstance)
	if err := agent.PublishReading(none); err == nil {
		t.Error("an agent's reading of no instance was published")
	}
	none.Service, none.Source = "my video.eu", quell.FromBalancer
	if err := agent.PublishReading(none); err != nil {
		t.Fatal(err)
	}
	if r := receive(t, got); !reflect.DeepEqual(r.reading, none) {
		t.Errorf("got %+v, want a balancer's reading of no instance", r.reading)
	}
	other := reading("i1") // of a service without a subscriber
	if err := agent.PublishReading(other); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := agent.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(got) > 0 {
		t.Errorf("got %+v, another service's", <-got)
	}
}

func TestNothingArrivesAfterStop(t *testing.T) {
	c := embedded(t)
	stopped, late := false, make(chan struct{}, 1)
	stop, err := c.SubscribeReadings("video", into(t, func(quell.Reading, time.Time) {
		if stopped {
			late <- struct{}{}
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := c.PublishReading(reading("i1")); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	stopped = true // the race detector reports a callback that still runs
	if err := c.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(late) > 0 {
		t.Error("a reading arrived after stop")
	}
}

func TestBadReadingsAreRejected(t *testing.T) {
	s := startServer(t, ServerOptions{})
	c := connect(t, Options{Server: s, Validate: func(r *quell.Reading) error {
		if r.Observation.WindowS < 0 {
			return errors.New("negative window")
		}
		return nil
	}})
	good, rejected := make(chan quell.Reading, 1), make(chan error, 1)
	stop, err := c.SubscribeReadings("video", Intake{
		Accept: func(r quell.Reading, _ time.Time) { good <- r }, Reject: func(err error) { rejected <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	const subject, head = "quell.video.reading.agent.i1", `{"service":"video","instance":"i1","source":"agent","sender":"",`
	for _, bad := range []struct{ data, why string }{
		{"", "truncated"},
		{"[]", "cannot unmarshal array"},
		{"null", "source"},
		{head + `"observation":{}`, "truncated"},
		{head + `"observation":{},"surprise":1}`, "surprise"},
		{head + `"observation":{}} {}`, "after the end"},
		{head + `"Instance":"i2","observation":{}}`, "Instance"},
		{head + `"observation":{"window_s":1e999}}`, "1e999"},
		{head + `"observation":{"utilization":{"gpu":1}}}`, "gpu"},
		{head + `"observation":{"window_s":-1}}`, "negative window"},
		{strings.Replace(head, "agent", "spy", 1) + `"observation":{}}`, "spy"},
		{strings.Replace(head, "i1", "i2", 1) + `"observation":{}}`, "subject"},
		{strings.Replace(head, "video", "audio", 1) + `"observation":{}}`, "subject"},
		{head + `"observation":{},"latency_hdr":"` + strings.Repeat("A", maxReading) + `"}`, "at most"},
	} {
		if err := c.nc.Publish(subject, []byte(bad.data)); err != nil {
			t.Fatal(err)
		}
		wantWords(t, receive(t, rejected), bad.why, subject)
	}
	if err := c.PublishReading(reading("i1")); err != nil {
		t.Fatal(err)
	}
	receive(t, good)
}

func TestBadReadingsAreNotSent(t *testing.T) {
	c := connect(t, Options{Server: startServer(t, ServerOptions{}), Validate: func(r *quell.Reading) error {
		if r.Sender == "" {
			return errors.New("no sender")
		}
		return nil
	}})
	for why, damage := range map[string]func(*quell.Reading){
		"no sender":      func(r *quell.Reading) { r.Sender = "" },
		"NaN":            func(r *quell.Reading) { r.Observation.WindowS = math.NaN() },
		"Inf":            func(r *quell.Reading) { r.Observation.Utilization[quell.CPU] = math.Inf(1) },
		"unknown source": func(r *quell.Reading) { r.Source = "spy" },
		"needs a name":   func(r *quell.Reading) { r.Instance = "" },
		"at most":        func(r *quell.Reading) { r.LatencyHDR = make([]byte, maxReading) },
	} {
		r := reading("i1")
		damage(&r)
		wantWords(t, c.PublishReading(r), why)
	}
}

func FuzzDecodeReading(f *testing.F) {
	seed, err := json.Marshal(reading("i1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("quell.video.reading.agent.i1", seed)
	f.Add("quell.video.reading.agent.i1",
		[]byte(`{"service":"video","instance":"i1","source":"agent","observation":{"probe":{"disk":{"n":-1}}}}`))
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		r, err := decodeReading(subject, data, nil)
		if err != nil {
			return
		}
		again, err := encodeReading(&r, nil)
		if err != nil {
			// Escaping can make a message larger than the limit.
			if len(data) < maxReading/6 {
				t.Fatalf("accepted %q but cannot encode it: %v", data, err)
			}
			return
		}
		if back, err := decodeReading(subject, again, nil); err != nil || !reflect.DeepEqual(normal(t, back), normal(t, r)) {
			t.Fatalf("%q came back as %q, %v", data, again, err)
		}
	})
}

// normal compares readings in their encoded form, where absent and empty are the same.
func normal(t *testing.T, r quell.Reading) string {
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
