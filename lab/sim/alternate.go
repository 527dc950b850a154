package sim

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/train"
)

// windows measures an exercise window by window, and lets neighbours come and go between windows.
type windows struct {
	*exercise
	request train.RunRequest
	fluid   bool
	use     float64 // of the neighbours in the present window
	list    []model.TrainingWindow

	// what had been counted when the present window began
	windowAt            float64
	before              int // requests
	answered, connected int
	used                [kinds]float64
	signed              signs
}

// alternate makes neighbours come and go from the moment at which the run begins to count.
func (e *exercise) alternate(r train.RunRequest, fluid bool) *windows {
	w := &windows{exercise: e, request: r, fluid: fluid}
	e.w.agenda.add(e.from, w.begin)
	return w
}

func (w *windows) begin() {
	e, a := w.exercise, w.request.Alternate
	if use := a.Use(len(w.list), w.request.Interference); use != w.use {
		e.w.interfere(0, w.request.Resource, use, w.fluid)
		w.use = use
	}
	w.windowAt, w.before, w.answered, w.connected, w.signed = e.w.now, e.asked, len(e.latencies), len(e.connects), e.w.signs(0)
	for _, k := range resourcesOf(e.clients.classes) {
		w.used[k] = e.w.peek(0, k, ownService)
	}
	e.w.agenda.add(e.from+float64(len(w.list)+1)*a.Window.Seconds(), w.end)
}

// end ends a window, and begins the next one unless the run is over.
func (w *windows) end() {
	w.list = append(w.list, model.TrainingWindow{Interfering: w.use, Observation: w.observation()})
	if len(w.list) < int(w.request.Run/w.request.Alternate.Window) {
		w.begin()
	}
}

// observation is what agent and balancer report of the window.
func (w *windows) observation() quell.Observation {
	e := w.exercise
	length := e.w.now - w.windowAt
	rate, failed := float64(e.asked-w.before)/length, 0.0
	o := quell.Observation{At: time.Unix(0, int64(duration(e.w.now))).UTC(), WindowS: length, RequestRate: &rate, ErrorRate: &failed,
		Utilization: map[quell.Resource]float64{}}
	for _, k := range resourcesOf(e.clients.classes) {
		o.Utilization[quell.Resources[k]] = min(1, max(0, (e.w.peek(0, k, ownService)-w.used[k])/length))
	}
	machineSigns(&o, e.clients.load, e.w.hosts[0].Cores, w.signed, e.w.signs(0))
	if took := slices.Clone(e.latencies[w.answered:]); len(took) > 0 {
		summary := scenario.Summarize(took)
		o.LatencyMS = &summary
	}
	if connects := e.connects[w.connected:]; len(connects) > 0 {
		if o.TCP == nil {
			o.TCP = map[string]float64{}
		}
		o.TCP["connect_ms_p90"] = p90(slices.Clone(connects))
	}
	return o
}
