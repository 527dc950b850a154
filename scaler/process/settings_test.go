package process

import (
	"testing"

	"github.com/quellhq/quell"
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
