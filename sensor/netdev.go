package sensor

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// traffic holds the bytes that an interface has received and sent since it came up.
type traffic struct{ rx, tx uint64 }

// parseNetDev reads /proc/net/dev: two header lines, then a line for each interface.
func parseNetDev(text []byte) (map[string]traffic, error) {
	const txColumn, columns = 8, 16
	interfaces := map[string]traffic{}
	for i, line := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 || bytes.ContainsRune(line, '|') {
			continue
		}
		// The name of an alias itself contains a colon.
		colon := bytes.LastIndexByte(line, ':')
		if colon < 0 {
			return nil, fmt.Errorf("line %d: no colon after the interface's name", i+1)
		}
		name, fields := string(bytes.TrimSpace(line[:colon])), bytes.Fields(line[colon+1:])
		if name == "" || len(fields) < columns {
			return nil, fmt.Errorf("line %d: want a name and %d counters, got %q and %d", i+1, columns, name, len(fields))
		}
		rx, errRX := strconv.ParseUint(string(fields[0]), 10, 64)
		tx, errTX := strconv.ParseUint(string(fields[txColumn]), 10, 64)
		if err := errors.Join(errRX, errTX); err != nil {
			return nil, fmt.Errorf("line %d: reading the bytes of %q: %w", i+1, name, err)
		}
		interfaces[name] = traffic{rx: rx, tx: tx}
	}
	return interfaces, nil
}

// parseRoute reads /proc/net/route and returns the interface of the default route. If there are several, it takes the one with the lowest
// metric, as the kernel does. Without a default route, it returns the interface of all routes, "" if there are several or none.
func parseRoute(text []byte) (string, error) {
	const up, reject = 0x1, 0x200
	best, lowest := "", uint64(math.MaxUint64)
	only, several := "", false
	for i, line := range bytes.Split(text, []byte("\n")) {
		fields := bytes.Fields(line)
		if i == 0 || len(fields) == 0 {
			continue
		}
		if len(fields) < 8 {
			return "", fmt.Errorf("line %d: want at least 8 columns, got %d", i+1, len(fields))
		}
		flags, errFlags := strconv.ParseUint(string(fields[3]), 16, 32)
		metric, errMetric := strconv.ParseUint(string(fields[6]), 10, 32)
		if err := errors.Join(errFlags, errMetric); err != nil {
			return "", fmt.Errorf("line %d: %w", i+1, err)
		}
		if flags&up == 0 || flags&reject != 0 {
			continue
		}
		name := string(fields[0])
		several = several || only != "" && only != name
		only = name
		isDefault := string(fields[1]) == "00000000" && string(fields[7]) == "00000000"
		if isDefault && metric < lowest {
			best, lowest = name, metric
		}
	}
	if best == "" && !several {
		best = only
	}
	return best, nil
}

// parseSpeed reads /sys/class/net/IF/speed, in Mbit/s, and returns bit/s. Interfaces without a speed, such as most virtual ones, report -1.
func parseSpeed(text []byte) (float64, error) {
	mbits, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 32)
	if err != nil {
		return 0, err
	}
	if mbits <= 0 {
		return 0, fmt.Errorf("the interface gives no speed (%d)", mbits)
	}
	return float64(mbits) * 1e6, nil
}
