package limit

import (
	"math"
	"strconv"
)

// weight sets weights of processor time. Settings are numbers as in cpu.weight (version 2) or cpu.shares (version 1).
type weight struct {
	*cpu
	file               string
	usual, least, most float64
}

func newWeight(o Options) (kind, error) {
	c, err := newCPU(o)
	if err != nil {
		return nil, err
	}
	if c.unified {
		return &weight{c, "cpu.weight", 100, 1, 10000}, nil
	}
	return &weight{c, "cpu.shares", 1024, 2, 262144}, nil
}

func (w *weight) unit() string { return "times the usual weight" }

func (w *weight) read(group string) (setting, error) {
	text, err := get(w.folder(group), w.file)
	return setting(text), err
}

func (w *weight) write(group string, s setting) error { return put(w.folder(group), w.file, string(s)) }

func (w *weight) to(value float64, _ setting) setting {
	return setting(strconv.FormatFloat(math.Round(min(max(value*w.usual, w.least), w.most)), 'f', 0, 64))
}

// value returns a weight over the usual one. The usual weight limits nothing.
func (w *weight) value(s setting) (float64, bool) {
	value, err := strconv.ParseFloat(string(s), 64)
	return value / w.usual, err == nil && value != w.usual
}
