package daemon

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/webfile"
	"github.com/quellhq/quell/page"
)

// descRunning says which of several services run.
var descRunning = prometheus.NewDesc("quell_service_running",
	"1 while a service among several runs; 0 while its file is bad or it cannot be started.", []string{"service"}, nil)

// Describe implements prometheus.Collector.
func (*services) Describe(ch chan<- *prometheus.Desc) { ch <- descRunning }

// Collect implements prometheus.Collector.
func (s *services) Collect(ch chan<- prometheus.Metric) {
	for _, one := range s.present() {
		up := 0.0
		if one.runner != nil {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(descRunning, prometheus.GaugeValue, up, one.name)
	}
	for _, name := range s.badNames() {
		ch <- prometheus.MustNewConstMetric(descRunning, prometheus.GaugeValue, 0, name)
	}
}

// badNames are the services whose files are bad, by name, or by file if that has no name. A name stands once.
func (s *services) badNames() (names []string) {
	seen := map[string]bool{}
	for _, one := range s.present() {
		seen[one.name] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, bad := range s.bad {
		name := bad.Name
		if name == "" || seen[name] {
			name = bad.Path
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// gatherer gathers the metrics of the process and of all services that run.
func (s *services) gatherer(self *self) prometheus.Gatherer {
	own := prometheus.NewRegistry()
	own.MustRegister(s)
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all := prometheus.Gatherers{own, self.registry}
		for _, one := range s.present() {
			if one.runner != nil {
				all = append(all, one.runner.Metrics())
			}
		}
		return all.Gather()
	})
}

// handler serves /metrics of all services, /healthz, /readyz (200 if every service is ready), /status (of all services, or of the one
// that ?service= names) and the pages: / lists the services, and below /services/NAME/ each has its own.
func (s *services) handler(metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /status", s.status)
	shown := page.Overview(page.Options{Listen: s.shared.Listen, TLS: webfile.TLS(s.shared.Web), Hosts: s.hosts, Log: s.log}, s.listed)
	mux.Handle("/{$}", shown)
	mux.Handle("/page/static/", shown)
	mux.HandleFunc("/services/{name}/", s.page)
	return mux
}

// listed are all services, for the overview.
func (s *services) listed() (all []page.Listed) {
	for _, one := range s.present() {
		row := page.Listed{Name: one.name, Why: "it is starting"}
		if one.runner != nil {
			row.Status = new(one.runner.Status())
		} else if one.err != nil {
			row.Why = one.err.Error()
		}
		all = append(all, row)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, bad := range s.bad {
		all = append(all, page.Listed{Name: cmp.Or(bad.Name, bad.Path), Why: tellBad(bad)})
	}
	return all
}

// page serves the page of a service that runs.
func (s *services) page(w http.ResponseWriter, r *http.Request) {
	for _, one := range s.present() {
		if one.name == r.PathValue("name") && one.runner != nil {
			one.runner.shown.ServeHTTP(w, r)
			return
		}
	}
	http.Error(w, "no such service runs here", http.StatusNotFound)
}

func (s *services) readyz(w http.ResponseWriter, _ *http.Request) {
	var problems, fine []string
	for _, one := range s.present() {
		text, err := "", one.err
		if one.runner != nil {
			text, err = one.runner.Ready()
		}
		switch {
		case err != nil:
			problems = append(problems, one.name+": "+err.Error())
		case one.runner == nil:
			problems = append(problems, one.name+": is starting")
		default:
			fine = append(fine, one.name+": "+text)
		}
	}
	s.mu.Lock()
	for _, bad := range s.bad {
		problems = append(problems, tellBad(bad))
	}
	s.mu.Unlock()
	if len(problems) > 0 {
		http.Error(w, strings.Join(problems, "\n"), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, strings.Join(fine, "\n"))
}

func (s *services) status(w http.ResponseWriter, r *http.Request) {
	wanted := r.URL.Query().Get("service")
	list := []controller.Status{}
	for _, one := range s.present() {
		if one.runner != nil && (wanted == "" || one.name == wanted) {
			list = append(list, one.runner.Status())
		}
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case wanted == "":
		_ = json.NewEncoder(w).Encode(list)
	case len(list) == 1:
		_ = json.NewEncoder(w).Encode(list[0])
	default:
		http.Error(w, "no service "+wanted+" runs here", http.StatusNotFound)
	}
}
