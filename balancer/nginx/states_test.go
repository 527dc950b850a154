package nginx

import (
	"testing"

	"github.com/quellhq/quell/balancer/managed"
	"github.com/quellhq/quell/balancer/nginx/include"
	"github.com/quellhq/quell/balancer/nginx/record"
)

// A line that is up gets requests, also if its instance was asked to drain and nginx has refused the file.
func TestADrainIsThatOfTheLine(t *testing.T) {
	for _, down := range []bool{false, true} {
		entry := &record.Entry{Entry: managed.Entry{ID: "a", Address: "10.0.0.1:80", Drain: true}}
		line := target{Entry: entry, line: &include.Server{Address: "10.0.0.1:80", Weight: 1, Down: down}, down: true}
		for _, asked := range []bool{false, true} {
			if s := line.state(1, asked); s.Draining != down {
				t.Errorf("down is %t, asked %t: %+v", down, asked, s)
			}
		}
	}
}
