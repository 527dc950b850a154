package experiment

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
)

// The meter adds up what its sensors measure, window by window, and shows the last window as an agent would. If a sensor fails, its value
// is missing, not 0.
func TestMeter(t *testing.T) {
	root := fstest.MapFS{}
	set := func(name, text string) { root[name] = &fstest.MapFile{Data: []byte(text)} }
	dev := func(sent int) {
		set("proc/net/dev", fmt.Sprintf("Inter-|\n face |\n  eth0: 0 0 0 0 0 0 0 0 %d 0 0 0 0 0 0 0\n", sent))
	}
	sensors, err := sensor.New(sensor.Options{Root: root, Interface: "eth0",
		Capacity: map[quell.Resource]float64{quell.Network: 8e6, quell.CPU: 1}})
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{sensors: sensors}
	ask := func() (r meterReading) {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, nil)
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	dev(0)
	if r := ask(); len(r.Seconds) != 0 || r.Observation.WindowS != 0 {
		t.Errorf("the first question begins a window, got %+v", r)
	}
	var want float64
	for sent := range 3 { // one more byte at each reading, of a million per second
		dev(sent + 1)
		r := ask()
		want += r.Observation.Utilization[quell.Network] * r.Observation.WindowS
		if got := r.Seconds[quell.Network]; math.Abs(got-want) > 1e-12 || math.Abs(got-1e-6*float64(sent+1)) > 1e-12 {
			t.Errorf("%d bytes took %v of the link", sent+1, got)
		}
		if _, ok := r.Seconds[quell.CPU]; ok || !strings.Contains(strings.Join(r.Failures, ""), "cpu") {
			t.Errorf("there is no proc/stat, yet %+v", r)
		}
	}
}
