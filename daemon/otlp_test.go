package daemon_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// otlpReceiver is a receiver of metrics by OTLP over HTTP. It keeps their names, by the service.name of the sender.
type otlpReceiver struct {
	*httptest.Server
	mu    sync.Mutex
	names map[string]map[string]bool
	fault error
}

func newOTLPReceiver(t *testing.T) *otlpReceiver {
	r := &otlpReceiver{names: map[string]map[string]bool{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if err := r.take(request); err != nil {
			r.mu.Lock()
			r.fault = err
			r.mu.Unlock()
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer, _ := proto.Marshal(&collector.ExportMetricsServiceResponse{})
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *otlpReceiver) take(request *http.Request) error {
	var body io.Reader = request.Body
	if request.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		body = unpacked
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var sent collector.ExportMetricsServiceRequest
	if err := proto.Unmarshal(data, &sent); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, process := range sent.ResourceMetrics {
		from := ""
		for _, a := range process.Resource.Attributes {
			if a.Key == "service.name" {
				from = a.Value.GetStringValue()
			}
		}
		if r.names[from] == nil {
			r.names[from] = map[string]bool{}
		}
		for _, scope := range process.ScopeMetrics {
			for _, m := range scope.Metrics {
				r.names[from][m.Name] = true
			}
		}
	}
	return nil
}

// lacking returns the metrics of a scrape that a sender has not sent, and any fault so far.
func (r *otlpReceiver) lacking(from string, scraped []byte) (names []string, fault error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(string(scraped)) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			if name, _, _ := strings.Cut(rest, " "); !r.names[from][name] {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names, r.fault
}
