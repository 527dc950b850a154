package daemon

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quellhq/quell/internal/build"
)

// self holds the metrics of a process of any role: its build, the Go runtime, its use of the machine, and how its last reload went.
type self struct {
	registry   *prometheus.Registry
	ok, loadAt prometheus.Gauge
}

// newSelf begins them for a process that has just loaded its configuration.
func newSelf() *self {
	b := build.This()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "quell_build_info", Help: "1, labelled with what this program was built from.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Commit, "goversion": b.Go, "goos": b.OS, "goarch": b.Arch},
	})
	info.Set(1)
	p := &self{registry: prometheus.NewRegistry(), ok: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "quell_config_last_reload_successful", Help: "1 if the last loading of the configuration succeeded, 0 if it had mistakes.",
	}), loadAt: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "quell_config_last_reload_success_timestamp_seconds", Help: "When the configuration was last loaded with success.",
	})}
	p.registry.MustRegister(info, p.ok, p.loadAt, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.loaded(true)
	return p
}

// loaded notes how a reload went.
func (p *self) loaded(ok bool) {
	if !ok {
		p.ok.Set(0)
		return
	}
	p.ok.Set(1)
	p.loadAt.SetToCurrentTime()
}
