package sensor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"time"

	"github.com/quellhq/quell"
)

// stall is how long tasks have waited for a resource since the machine or the control group was made.
type stall struct {
	some time.Duration // time in which at least one task waited
	full *time.Duration
}

// parseStall reads the totals, in microseconds, of lines like "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345".
func parseStall(text []byte) (s stall, err error) {
	found := false
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		kind := string(fields[0])
		if kind != "some" && kind != "full" {
			continue
		}
		value, ok := bytes.CutPrefix(fields[len(fields)-1], []byte("total="))
		if !ok {
			return stall{}, fmt.Errorf("want a total at the end of %q", bytes.TrimSpace(line))
		}
		const mostMicroseconds = 1 << 53 // some 285 years
		us, err := strconv.ParseUint(string(value), 10, 63)
		if err != nil || us > mostMicroseconds {
			return stall{}, fmt.Errorf("%q is no time in microseconds", value)
		}
		total := time.Duration(us) * time.Microsecond
		if kind == "full" {
			s.full = &total
			continue
		}
		s.some, found = total, true
	}
	if !found {
		return stall{}, errors.New(`no line "some"`)
	}
	return s, nil
}

// resourcesUnderPressure are the resources for which the kernel reports pressure.
var resourcesUnderPressure = []string{"cpu", "io", "memory"}

// readStalls reads the pressure of the machine or of a group. A resource is left out if the kernel does not report it or its file cannot be
// read.
func readStalls(root fs.FS, folder, suffix string) (map[string]stall, error) {
	stalls := map[string]stall{}
	var errs []error
	for _, name := range resourcesUnderPressure {
		file := path.Join(folder, name+suffix)
		text, err := fs.ReadFile(root, file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		var s stall
		if err == nil {
			s, err = parseStall(text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading /%s: %w", file, err))
			continue
		}
		stalls[name] = s
	}
	return stalls, errors.Join(errs...)
}

// pressureBetween returns the shares of the window in which tasks waited. Counters that went back are ignored.
func pressureBetween(before, after map[string]stall, window time.Duration) map[string]float64 {
	pressure := map[string]float64{}
	for name, now := range after {
		then, ok := before[name]
		if !ok || now.some < then.some {
			continue
		}
		pressure[name] = min(1, (now.some-then.some).Seconds()/window.Seconds())
		if name == "cpu" && now.full != nil && then.full != nil && *now.full >= *then.full {
			pressure[quell.PressureFull] = min(pressure[name], (*now.full-*then.full).Seconds()/window.Seconds())
		}
	}
	if len(pressure) == 0 {
		return nil
	}
	return pressure
}
