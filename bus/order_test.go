package bus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
)

func limitOrders(instance string) Orders {
	return Orders{Limits: []quell.Limit{{Instance: instance, Resource: quell.Network, Value: 2e8, Unit: "bit/s"}}}
}

func TestOrdersAreAnswered(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	controller := connect(t, Options{Server: s})
	agent := connect(t, as(s, ring, auth.Sensor, "i.1"))
	heard := make(chan Orders, 1)
	stop, err := agent.ServeOrders("video", "i.1", func(_ context.Context, o Orders) (any, error) {
		heard <- o
		if len(o.Settings) > 0 {
			return nil, errors.New("no driver for\x1b[2J apache")
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := controller.Order(t.Context(), "video", "i.1", limitOrders("i.1")); err != nil {
		t.Fatal(err)
	}
	if o := receive(t, heard); len(o.Limits) != 1 || o.Limits[0].Value != 2e8 {
		t.Errorf("heard %+v", o)
	}
	refused := Orders{Settings: []quell.Setting{{Instance: "i.1", Target: "apache", Name: "x", Value: 1}}}
	wantWords(t, controller.Order(t.Context(), "video", "i.1", refused), "the agent of i.1: no driver for", `\x1b[2J apache`)
	receive(t, heard)
	stop()
	wantWords(t, controller.Order(t.Context(), "video", "i.1", limitOrders("i.1")), "no agent of i.1 hears orders")

	again := connect(t, as(s, ring, auth.Sensor, "i.1")) // as if the agent had been restarted
	if _, err := again.ServeOrders("video", "i.1", func(context.Context, Orders) (any, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	if err := controller.Order(t.Context(), "video", "i.1", limitOrders("i.1")); err != nil {
		t.Error(err)
	}
}

func TestASilentAgent(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	controller := connect(t, Options{Server: s})
	wantWords(t, controller.Order(t.Context(), "video", "i1", limitOrders("i1")), "no agent of i1 hears orders")

	entered, release := make(chan struct{}), make(chan struct{})
	_, err := connect(t, as(s, ring, auth.Sensor, "i1")).ServeOrders("video", "i1", func(context.Context, Orders) (any, error) {
		close(entered)
		<-release
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantWords(t, controller.Order(ctx, "video", "i1", limitOrders("i1")), "the agent of i1 did not answer")
	receive(t, entered)
	close(release)
}

func TestOrdersForTheWrongInstance(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	controller := connect(t, Options{Server: s})
	_, err := connect(t, as(s, ring, auth.Sensor, "i1")).ServeOrders("video", "i1", func(context.Context, Orders) (any, error) {
		t.Error("carried out")
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantWords(t, controller.Order(t.Context(), "video", "i1", limitOrders("i2")), `it is for "i2", and this is "i1"`)
	wantWords(t, controller.Order(t.Context(), "video", "i1", Orders{}), "ask for nothing")
	for bad, want := range map[string]string{
		`{"limits":[{"instance":"i2","resource":"network","value":1,"unit":"bit/s"}]}`:  "it is for",
		`{"limits":[{"instance":"i1","resource":"network","value":-1,"unit":"bit/s"}]}`: "negative",
		`{"reboot":true}`: "reboot",
	} {
		_, err := decodeOrders([]byte(bad), "i1")
		wantWords(t, err, want)
	}
}
