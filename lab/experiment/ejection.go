package experiment

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// envoyTimeout is how long Envoy waits for an answer: longer than clients wait.
const envoyTimeout = 60 * time.Second

// ejections is the file to which Envoy writes its ejections.
func (g *KernelGroup) ejections() string { return filepath.Join(g.dir, "ejections.log") }

// envoyEjection is the run's outlier detection as parts of Envoy's configuration: the timeout of the route, the last lines of the
// cluster, and a section for the cluster manager. Settings that are not named have Envoy's defaults.
func (g *KernelGroup) envoyEjection() (timeout time.Duration, detection, manager string) {
	r, on := g.run.Ejection.Rules()
	if !on {
		return envoyTimeout, "", ""
	}
	if timeout = envoyTimeout; r.Timeout > 0 {
		timeout = r.Timeout
	}
	enforced := 0
	if r.FailurePercent > 0 {
		enforced = 100
	}
	detection = fmt.Sprintf(envoyDetection, r.Consecutive, r.Interval.Seconds(), r.Base.Seconds(), r.Longest.Seconds(), r.MostPercent,
		r.MinimumHosts, r.SuccessRequests, 1000*r.Deviations, enforced, max(1, r.FailurePercent), r.MinimumHosts, r.FailureRequests)
	return timeout, detection, fmt.Sprintf("cluster_manager: {outlier_detection: {event_log_path: %q}}\n", g.ejections())
}

const envoyDetection = `    outlier_detection:
      consecutive_5xx: %d
      interval: %gs
      base_ejection_time: %gs
      max_ejection_time: %gs
      max_ejection_percent: %d
      success_rate_minimum_hosts: %d
      success_rate_request_volume: %d
      success_rate_stdev_factor: %.0f
      enforcing_failure_percentage: %d
      failure_percentage_threshold: %d
      failure_percentage_minimum_hosts: %d
      failure_percentage_request_volume: %d
`

// ejectionEvent is a line of Envoy's event log.
type ejectionEvent struct {
	At       time.Time `json:"timestamp"`
	Action   string    `json:"action"` // EJECT or UNEJECT
	Enforced bool      `json:"enforced"`
}

// readEjections reads from Envoy's event log when instances were ejected or let back since a time.
func readEjections(path string, since time.Time) (changes []time.Time, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e ejectionEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if (e.Enforced || e.Action == "UNEJECT") && !e.At.Before(since) {
			changes = append(changes, e.At)
		}
	}
	return changes, lines.Err()
}
