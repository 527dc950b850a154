package bus

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
)

// A part of a training goes from the controller to the agent, and its answer comes back. An operator and a sensor cannot send it to an
// agent, and a sensor cannot ask the controller for it.
func TestTrainings(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	heard := make(chan Training, 8)
	_, err := connect(t, as(s, ring, auth.Sensor, "i1")).ServeOrders("video", "i1", func(_ context.Context, o Orders) (any, error) {
		heard <- *o.Training
		return Trained{Feels: []quell.Resource{quell.CPU}, Own: map[quell.Resource]float64{quell.CPU: 2}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Training{Resource: quell.CPU, Use: 0.5, ForS: 10}
	done, err := connect(t, Options{Server: s}).Train(t.Context(), "video", "i1", want)
	if err != nil || len(done.Feels) != 1 || done.Own[quell.CPU] != 2 {
		t.Fatalf("answer %+v, %v", done, err)
	}
	if got := receive(t, heard); got != want {
		t.Errorf("heard %+v", got)
	}
	for _, role := range []auth.Role{auth.Operator, auth.Sensor, auth.Balancer} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // the bus drops what it does not allow
		if _, err := connect(t, as(s, ring, role, "i2")).Train(ctx, "video", "i1", want); err == nil {
			t.Errorf("a credential of role %s trains on an instance", role)
		}
		cancel()
	}
	if len(heard) > 0 {
		t.Errorf("the agent heard %+v", <-heard)
	}
	_, err = connect(t, as(s, ring, auth.Sensor, "i3")).Ask(t.Context(), "video", Command{Name: Train, Instance: "i1", ForS: 10})
	wantWords(t, err, "cannot ask for train")
}

func TestBadTrainings(t *testing.T) {
	for want, bad := range map[string]Training{
		"unknown resource": {Resource: "gpu", Use: 0.1, ForS: 1},
		"is not a share":   {Resource: quell.CPU, Use: math.NaN(), ForS: 1},
		"needs a resource": {Use: 0.1, ForS: 1},
		"is not a time":    {Resource: quell.CPU, Use: 0.1, ForS: 1e9},
	} {
		wantWords(t, Command{Name: Train, Instance: "i1", ForS: 10, Training: &bad}.Check(), "train: ", want)
		wantWords(t, (&Orders{Training: &bad}).check("i1"), want)
	}
	wantWords(t, (&Orders{Training: &Training{}, Release: true}).check("i1"), "comes with nothing else")
	wantWords(t, Command{Name: Train}.Check(), "train needs an instance")
}
