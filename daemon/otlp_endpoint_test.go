package daemon

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
)

// The variables of OpenTelemetry turn the export on and off. An address that is none is a mistake, not silence.
func TestOTLPEndpoint(t *testing.T) {
	for _, tc := range []struct {
		all, metrics, exporter, disabled string
		want                             string
		bad                              bool
	}{
		{},
		{all: "http://127.0.0.1:4318", want: "http://127.0.0.1:4318"},
		{all: "http://127.0.0.1:4318", metrics: "https://other/v1/metrics", want: "https://other/v1/metrics"},
		{all: "http://127.0.0.1:4318", exporter: "none"},
		{all: "http://127.0.0.1:4318", disabled: "TRUE"},
		{all: "127.0.0.1:4318", bad: true},
		{metrics: "grpc://127.0.0.1:4317", bad: true},
		{all: "http://", bad: true},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", tc.all)
		t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", tc.metrics)
		t.Setenv("OTEL_METRICS_EXPORTER", tc.exporter)
		t.Setenv("OTEL_SDK_DISABLED", tc.disabled)
		got, err := otlpEndpoint()
		if user := new(quell.UserError); got != tc.want || errors.As(err, &user) != tc.bad {
			t.Errorf("%+v: %q, %v", tc, got, err)
		}
		if tc.bad {
			if _, err := exportOTLP(t.Context(), "agent", "", prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil {
				t.Errorf("%+v: no error", tc)
			}
		}
	}
}
