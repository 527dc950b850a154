package bus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
)

func settingOrders(instance string) Orders {
	return Orders{Settings: []quell.Setting{{Instance: instance, Target: "nginx", Name: "x", Value: 2}}}
}

func TestOrdersAreAnswered(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	controller := connect(t, Options{Server: s})
	agent := connect(t, as(s, ring, auth.Sensor, "i.1"))
	heard := make(chan Orders, 1)
	stop, err := agent.ServeOrders("video", "i.1", func(_ context.Context, o Orders) (any, error) {
		heard <- o
		if o.Settings[0].Target == "apache" {
			return nil, errors.New("no driver for\x1b[2J apache")
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := controller.Order(t.Context(), "video", "i.1", settingOrders("i.1")); err != nil {
		t.Fatal(err)
	}
	if o := receive(t, heard); len(o.Settings) != 1 || o.Settings[0].Value != 2 {
		t.Errorf("heard %+v", o)
	}
	refused := Orders{Settings: []quell.Setting{{Instance: "i.1", Target: "apache", Name: "x", Value: 1}}}
	wantWords(t, controller.Order(t.Context(), "video", "i.1", refused), "the agent of i.1: no driver for", `\x1b[2J apache`)
	receive(t, heard)
	stop()
	wantWords(t, controller.Order(t.Context(), "video", "i.1", settingOrders("i.1")), "no agent of i.1 hears orders")

	again := connect(t, as(s, ring, auth.Sensor, "i.1")) // as if the agent had been restarted
	if _, err := again.ServeOrders("video", "i.1", func(context.Context, Orders) (any, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	if err := controller.Order(t.Context(), "video", "i.1", settingOrders("i.1")); err != nil {
		t.Error(err)
	}
}

func TestASilentAgent(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	controller := connect(t, Options{Server: s})
	wantWords(t, controller.Order(t.Context(), "video", "i1", settingOrders("i1")), "no agent of i1 hears orders")

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
	wantWords(t, controller.Order(ctx, "video", "i1", settingOrders("i1")), "the agent of i1 did not answer")
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
	wantWords(t, controller.Order(t.Context(), "video", "i1", settingOrders("i2")), `it is for "i2", and this is "i1"`)
	wantWords(t, controller.Order(t.Context(), "video", "i1", Orders{}), "ask for nothing")
	for bad, want := range map[string]string{
		`{"settings":[{"instance":"i2","target":"apache","name":"x","value":1}]}`:  "it is for",
		`{"settings":[{"instance":"i1","target":"apache","name":"x","value":-1}]}`: "negative",
		`{"reboot":true}`: "reboot",
	} {
		_, err := decodeOrders([]byte(bad), "i1")
		wantWords(t, err, want)
	}
}
