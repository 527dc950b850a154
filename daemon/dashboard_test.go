package daemon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quellhq/quell/internal/need"
)

// dashboard is what the test reads of a dashboard of Grafana.
type dashboard struct {
	Title  string
	Panels []struct {
		ID          uint
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr, LegendFormat string }
		Description string
	}
	Annotations struct{ List []struct{ Expr string } }
}

// queries returns each query of the dashboard with what asks it, as Grafana sends it for all services.
func (d *dashboard) queries() map[string]string {
	as := strings.NewReplacer("$service", ".*", "$__rate_interval", "5m")
	all := map[string]string{}
	for _, p := range d.Panels {
		for i, q := range p.Targets {
			all[fmt.Sprintf("%s, %d", p.Title, i+1)] = as.Replace(q.Expr)
		}
	}
	for i, a := range d.Annotations.List {
		all[fmt.Sprintf("annotation %d", i+1)] = as.Replace(a.Expr)
	}
	return all
}

// metricName finds the names of Quell's metrics, and those of every process, in a query.
var metricName = regexp.MustCompile(`\b(?:quell|process|go)_[a-z0-9_]+`)

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	d := &dashboard{}
	text, err := os.ReadFile("../examples/prometheus/dashboard.json")
	if err == nil {
		err = json.Unmarshal(text, d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The panels of the dashboard have their own numbers and places, and say what they show.
func TestDashboardIsWellFormed(t *testing.T) {
	seen, taken := map[uint]bool{}, map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		if seen[p.ID] || p.Title == "" || p.GridPos.W < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: place %+v", p.ID, p.Title, p.GridPos)
		}
		seen[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" {
					t.Fatalf("%q lies over %q", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
		if p.Type != "row" && (p.Description == "" || len(p.Targets) == 0 || p.Targets[0].LegendFormat == "") {
			t.Errorf("%q lacks a description, a query or a legend", p.Title)
		}
	}
}

// Prometheus accepts each query of the dashboard, and scrapes each metric that is in one from a running service. Whether a query has an
// answer is not asked: some have none while nothing changes.
func TestDashboardOnPrometheus(t *testing.T) {
	t.Parallel()
	program := need.Program(t, "prometheus")
	queries := readDashboard(t).queries()
	r := newRig(t, "")
	models, err := filepath.Abs("../examples/golden/models.json")
	if err != nil {
		t.Fatal(err)
	}
	balancer := need.FreeAddress(t)
	r.write(strings.Replace(hosts(r), "policy: {name: static}", "policy: {name: prima}\nmodels: "+models+"\nlearn: true", 1))
	r.replace("metrics: off", fmt.Sprintf("metrics: %q", balancer))
	r.start("controller")
	r.start("balancer")
	address := prometheus(t, r, program, balancer)
	r.awaitServing("i1", "i2")
	flow(r)
	names := map[string]bool{}
	for name, query := range queries {
		r.await("an answer to "+name, func() (bool, any) {
			_, err := seriesOf(address, query)
			return err == nil, fmt.Sprintf("%s: %v", query, err)
		})
		for _, metric := range metricName.FindAllString(query, -1) {
			names[metric] = true
		}
	}
	for metric := range names {
		r.await("the metric "+metric, func() (bool, any) {
			n, err := seriesOf(address, metric)
			return n > 0, err
		})
	}
}

// prometheus starts a Prometheus that scrapes a service, with the example's alerts, and returns its address.
func prometheus(t *testing.T, r *rig, program, balancer string) (address string) {
	t.Helper()
	rules, err := filepath.Abs("../examples/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	address = need.FreeAddress(t)
	text := fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 5s}
rule_files: [%q]
scrape_configs:
- {job_name: controller, static_configs: [{targets: [%q]}]}
- {job_name: balancer, static_configs: [{targets: [%q]}]}
`, rules, r.metrics, balancer)
	file := filepath.Join(r.dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.launch("prometheus", exec.Command(program, "--config.file", file, "--storage.tsdb.path", filepath.Join(r.dir, "tsdb"),
		"--web.listen-address", address))
	return address
}

// seriesOf asks Prometheus and returns how many series the answer has.
func seriesOf(address, query string) (series int, err error) {
	body, err := get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return 0, err
	}
	var answer struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("%w: %s", err, body)
	}
	if answer.Error != "" {
		return 0, errors.New(answer.Error)
	}
	return len(answer.Data.Result), nil
}
