package process

import (
	"log/slog"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/setting"
)

// A group that is at group.max has a further slot for a replacement, unless slots are machines or there are too few ports.
func TestASlotForAReplacement(t *testing.T) {
	plain, probed := []string{"web", "{port}"}, []string{"web", "{port}", "{probe_port}"}
	for _, c := range []struct {
		name string
		s    Settings
		want int
	}{
		{"nothing is said", Settings{Command: plain}, 4},
		{"the configuration says how many", Settings{Command: plain, Slots: 3}, 3},
		{"slots are machines", Settings{Command: plain, Address: "10.0.{slot}.2:80"}, 3},
		{"so are hosts", Settings{Command: []string{"ssh", "{host}", "web"}}, 3},
		{"ports for the group", Settings{Command: probed, Ports: setting.Ports{First: 9000, Last: 9006}}, 3},
		{"ports for one more", Settings{Command: probed, Ports: setting.Ports{First: 9000, Last: 9007}}, 4},
	} {
		c.s.Follow(quell.Service{Group: quell.Group{Min: 1, Max: 3}})
		if c.s.Slots != c.want {
			t.Errorf("%s: %d slots, want %d", c.name, c.s.Slots, c.want)
		}
	}
}

// A group that becomes larger, or slower to start, while the controller runs gives the driver its limits, where the file has none.
func TestTheDriverFollowsAChangedGroup(t *testing.T) {
	before := quell.Service{Group: quell.Group{Max: 3, Startup: 30 * time.Second}}
	after := quell.Service{Group: quell.Group{Max: 5, Startup: 2 * time.Minute}}
	for name, c := range map[string]struct {
		s     Settings
		slots int
		ready time.Duration
	}{
		"nothing is said": {Settings{}, 6, 2 * time.Minute},
		"both are given":  {Settings{Slots: 4, Ready: Ready{Timeout: time.Minute}}, 4, time.Minute},
	} {
		c.s.Command = []string{"web", "{port}"}
		c.s.Follow(before)
		made, err := c.s.New(scaler.Env{Data: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		d := made.(*configured)
		if d.Refit(after); d.opts.Slots != c.slots || d.opts.Ready.Timeout != c.ready {
			t.Errorf("%s: %d slots, ready within %s", name, d.opts.Slots, d.opts.Ready.Timeout)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
