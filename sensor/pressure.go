package sensor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/quellhq/quell"
)

// Pressure reads the kernel's pressure stall information: the fraction of the last ten seconds in which some task waited for a resource.
// Kernels before 4.20, or started without it, do not report any; that is not a failure.
type Pressure struct{ root fs.FS }

// NewPressure returns a sensor of the pressure files below o.Root.
func NewPressure(o Options) *Pressure { return &Pressure{root: o.Root} }

// Name is "pressure".
func (p *Pressure) Name() string { return "pressure" }

// Sample implements Sensor. If a file cannot be read, the others still are.
func (p *Pressure) Sample(_ time.Time, obs *quell.Observation) error {
	return errors.Join(p.sample(obs, "cpu"), p.sample(obs, "io"), p.sample(obs, "memory"))
}

func (p *Pressure) sample(obs *quell.Observation, name string) error {
	text, err := fs.ReadFile(p.root, "proc/pressure/"+name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s pressure: %w", name, err)
	}
	share, err := parsePressure(text)
	if err != nil {
		return fmt.Errorf("parsing /proc/pressure/%s: %w", name, err)
	}
	quell.Put(&obs.Pressure, name, share)
	return nil
}

// parsePressure reads the line "some avg10=1.53 avg60=0.87 avg300=0.22 total=..." and returns avg10 as a fraction.
func parsePressure(text []byte) (float64, error) {
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 2 || string(fields[0]) != "some" {
			continue
		}
		value, ok := bytes.CutPrefix(fields[1], []byte("avg10="))
		if !ok {
			return 0, fmt.Errorf("want avg10 after some, got %q", fields[1])
		}
		percent, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			return 0, err
		}
		if !(percent >= 0 && percent <= 100) {
			return 0, fmt.Errorf("avg10 of %v is no percentage", percent)
		}
		return percent / 100, nil
	}
	return 0, errors.New(`no line "some"`)
}
