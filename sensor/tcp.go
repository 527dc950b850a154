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

// RetransmitRate is a key of Observation.TCP. Its value is the number of TCP segments per second that the machine sent again because no
// acknowledgement had arrived.
const RetransmitRate = "retransmit_rate"

// TCP measures how many TCP segments the machine sends again. It counts those of its own network namespace, of IPv4 and IPv6, including
// answers to probes.
type TCP struct {
	root fs.FS
	last *tcpReading
}

// tcpReading is the state of the counter at one moment.
type tcpReading struct {
	at            time.Time
	retransmitted uint64 // segments since the namespace was made
}

// NewTCP returns a sensor of the network namespace of the process that reads o.Root.
func NewTCP(o Options) *TCP { return &TCP{root: o.Root} }

// Name is "tcp".
func (t *TCP) Name() string { return "tcp" }

// Sample implements Sensor.
func (t *TCP) Sample(now time.Time, obs *quell.Observation) error {
	before := t.last
	t.last = nil // after a failure below, the next call only sets the starting point: a reading covers exactly one window
	text, err := fs.ReadFile(t.root, "proc/net/snmp")
	if err != nil {
		return fmt.Errorf("reading TCP counters: %w", err)
	}
	retransmitted, err := parseRetransmitted(text)
	if err != nil {
		return fmt.Errorf("parsing /proc/net/snmp: %w", err)
	}
	t.last = &tcpReading{now, retransmitted}
	if before == nil {
		return nil
	}
	seconds := now.Sub(before.at).Seconds()
	if seconds <= 0 || retransmitted < before.retransmitted {
		return errors.New("the counter of retransmitted TCP segments, or the clock, went back: reading skipped")
	}
	quell.Put(&obs.TCP, RetransmitRate, float64(retransmitted-before.retransmitted)/seconds)
	return nil
}

// parseRetransmitted reads /proc/net/snmp and returns RetransSegs. The file has two lines for each protocol: "Tcp: NAME NAME ..." and
// "Tcp: NUMBER NUMBER ...".
func parseRetransmitted(text []byte) (uint64, error) {
	var names [][]byte
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || string(fields[0]) != "Tcp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if string(name) == "RetransSegs" && i < len(fields) {
				return parseSegments(fields[i])
			}
		}
	}
	return 0, errors.New("no number of RetransSegs in the lines that begin with Tcp")
}

func parseSegments(text []byte) (uint64, error) {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("RetransSegs: %w", err)
	}
	return n, nil
}
