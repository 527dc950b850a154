package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	prometheusbridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/build"
	"github.com/quellhq/quell/internal/outage"
)

// otlpEndpoints are the variables that turn on the export of metrics by OTLP. These and the other variables of OpenTelemetry (headers,
// certificates, interval, attributes) are read by its library.
var otlpEndpoints = []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}

// otlpEndpoint returns where metrics are sent by OTLP; "" if they are not.
func otlpEndpoint() (string, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_METRICS_EXPORTER") == "none" {
		return "", nil
	}
	for _, name := range otlpEndpoints {
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		if at, err := url.Parse(text); err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
			return "", &quell.UserError{Err: fmt.Errorf("%s: %q is no http or https address: write it as in http://127.0.0.1:4318", name, text)}
		}
		return text, nil
	}
	return "", nil
}

// exportOTLP sends a process's metrics by OTLP, if the environment names a receiver. stop sends them once more. A receiver that does not
// answer is logged, and nothing else.
func exportOTLP(ctx context.Context, role, instance string, metrics prometheus.Gatherer, log *slog.Logger) (stop func(), err error) {
	endpoint, err := otlpEndpoint()
	if err != nil || endpoint == "" {
		return func() {}, err
	}
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, &quell.UserError{Err: fmt.Errorf("the export of metrics to %s: %w", endpoint, err)}
	}
	attributes := []attribute.KeyValue{attribute.String("service.name", "quell-"+role),
		attribute.String("service.version", build.This().Version)}
	if instance != "" {
		attributes = append(attributes, attribute.String("service.instance.id", instance))
	}
	about, err := resource.New(ctx, resource.WithAttributes(attributes...), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, &quell.UserError{Err: fmt.Errorf("the attributes of the environment for OTLP: %w", err)}
	}
	noted := &otlpExporter{exporter, &outage.Kinds{Logger: log, What: "metrics cannot be exported by OTLP", Level: slog.LevelWarn}}
	reader := metric.NewPeriodicReader(noted, metric.WithProducer(prometheusbridge.NewMetricProducer(prometheusbridge.WithGatherer(metrics))))
	provider := metric.NewMeterProvider(metric.WithResource(about), metric.WithReader(reader))
	log.Info("metrics are exported by OTLP", "endpoint", endpoint)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), otlpFarewell)
		defer cancel()
		_ = provider.Shutdown(ctx) // logged by the exporter
	}, nil
}

// otlpFarewell is how long the end of a process may wait for the receiver.
const otlpFarewell = time.Second

// otlpExporter logs failed exports.
type otlpExporter struct {
	metric.Exporter
	failures *outage.Kinds
}

// Export implements metric.Exporter.
func (e *otlpExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	if err := e.Exporter.Export(ctx, m); err != nil {
		e.failures.Note(err.Error())
	}
	return nil
}
