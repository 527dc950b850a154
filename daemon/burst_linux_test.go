package daemon

import (
	"log/slog"
	"os"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/limit"
	"github.com/quellhq/quell/sensor"
)

// A limit of the network is one of an interface: the instance of the limit is its name, and no control group.
func TestNetworkLimitsAreOfInterfaces(t *testing.T) {
	name := need.Interface(t)
	groups, err := sensor.NewGroups(os.DirFS("/"), nil)
	if err != nil {
		t.Fatal(err)
	}
	o := limit.Options{Records: t.TempDir()}
	limits := groupLimits{groups, &hostPolicy{log: slog.New(slog.DiscardHandler)}, o}
	want := []quell.Limit{{Instance: name, Resource: quell.Network, Value: 200e6, Unit: "bit/s"}}
	if failed := limits.Apply(want); len(failed) > 0 {
		t.Fatal(failed)
	}
	if list, err := limit.Show(o); err != nil || len(list) != 1 || list[0].Group != name {
		t.Errorf("in force: %+v, %v", list, err)
	}
	want[0].Instance = "q9"
	if failed := limits.Apply(want); len(failed) != 1 || failed["q9"] == nil {
		t.Errorf("of an interface that is not there: %v", failed)
	}
	if list, err := limit.Show(o); err != nil || len(list) != 0 {
		t.Errorf("in force without a plan that asks for it: %+v, %v", list, err)
	}
	if failed := limits.Apply(nil); len(failed) > 0 {
		t.Error(failed)
	}
}
