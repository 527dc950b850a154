package experiment

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/config/keys"
	"github.com/quellhq/quell/policy"
)

// TestServiceIsWrittenWhole holds that the processes of a run read the service that the scenario has, with every key.
func TestServiceIsWrittenWhole(t *testing.T) {
	s := quell.DefaultService()
	s.Name, s.SLO, s.Sampling, s.Mode = "no", quell.SLO{Metric: quell.P95, Threshold: 75 * time.Millisecond}, 90*time.Second, quell.Advise
	settings := policy.Whole(s.Policy).Settings.(policy.PRIMASettings)
	settings.Confirm, settings.Headroom, settings.Tolerance = 3, 1/1.3, 0.1234567890123
	s.Policy.Settings = settings
	s.Group.Min, s.Group.Max, s.Group.Initial, s.Group.Protected = 2, 5, 3, []string{"i1", "007"}
	s.Guard.SlowStart, s.Guard.Floor = 1500*time.Millisecond, 0.29
	var b bytes.Buffer
	if err := keys.Write(&b, config.ServiceKeys(&s), nil); err != nil {
		t.Fatal(err)
	}
	got, err := config.ParseService("quell.yaml", b.Bytes())
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%v\ngot  %+v\nwant %+v\nfrom\n%s", err, got, s, &b)
	}
}
