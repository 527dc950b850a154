// Package keda answers KEDA's external scaler interface: with it, KEDA and the horizontal pod autoscaler that it makes set the number of a
// service's pods to the number that Quell wants.
package keda

import (
	"context"
	"log/slog"

	"github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/grpclimit"
)

// Metric is the name of the only metric: the wanted number of instances, with a target of one for each instance.
const Metric = "quell-wanted-instances"

// Options say what is served.
type Options struct {
	Address string
	Secure  certfile.Files // without a Cert: no TLS
	Service string
	// Wanted returns how many instances are wanted, or why that is unknown at present.
	Wanted func() (int, error)
	Logger *slog.Logger
}

// Listen answers KEDA until stop is called.
func Listen(o Options) (address string, stop func(), err error) {
	g, err := grpclimit.Open(grpclimit.Options{Address: o.Address, What: "KEDA (keda.listen)", Secure: o.Secure, Section: "keda.tls",
		Logger: o.Logger})
	if err != nil {
		return "", nil, err
	}
	s := &server{Options: o, ending: make(chan struct{})}
	externalscaler.RegisterExternalScalerServer(g, s)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); g.Serve(ctx) }()
	return g.Address(), func() { close(s.ending); cancel(); <-ended }, nil
}

type server struct {
	externalscaler.UnimplementedExternalScalerServer
	Options
	ending chan struct{}
}

// asked checks that KEDA asks for this service.
func (s *server) asked(ref *externalscaler.ScaledObjectRef) error {
	if name := ref.GetScalerMetadata()["service"]; name != "" && name != s.Service {
		return status.Errorf(codes.NotFound, "the trigger's metadata asks for service %q, and this controller's is %q", name, s.Service)
	}
	return nil
}

// IsActive returns true: KEDA would stop the last pod of what is not active, and Quell never wants none.
func (s *server) IsActive(_ context.Context, ref *externalscaler.ScaledObjectRef) (*externalscaler.IsActiveResponse, error) {
	return &externalscaler.IsActiveResponse{Result: true}, s.asked(ref)
}

// StreamIsActive says so once, and again never, because it does not change.
func (s *server) StreamIsActive(ref *externalscaler.ScaledObjectRef, to externalscaler.ExternalScaler_StreamIsActiveServer) error {
	if err := s.asked(ref); err != nil {
		return err
	}
	if err := to.Send(&externalscaler.IsActiveResponse{Result: true}); err != nil {
		return err
	}
	select {
	case <-to.Context().Done():
		return to.Context().Err()
	case <-s.ending:
		return status.Error(codes.Unavailable, "the controller ends")
	}
}

// GetMetricSpec describes the metric.
func (s *server) GetMetricSpec(_ context.Context, ref *externalscaler.ScaledObjectRef) (*externalscaler.GetMetricSpecResponse, error) {
	return &externalscaler.GetMetricSpecResponse{MetricSpecs: []*externalscaler.MetricSpec{
		{MetricName: Metric, TargetSize: 1, TargetSizeFloat: 1},
	}}, s.asked(ref)
}

// GetMetrics returns the wanted number. While it is unknown, it returns an error: then the autoscaler leaves the number of pods as it is,
// or takes the ScaledObject's fallback.
func (s *server) GetMetrics(_ context.Context, ask *externalscaler.GetMetricsRequest) (*externalscaler.GetMetricsResponse, error) {
	if err := s.asked(ask.GetScaledObjectRef()); err != nil {
		return nil, err
	}
	n, err := s.Wanted()
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &externalscaler.GetMetricsResponse{MetricValues: []*externalscaler.MetricValue{
		{MetricName: Metric, MetricValue: int64(n), MetricValueFloat: float64(n)},
	}}, nil
}
