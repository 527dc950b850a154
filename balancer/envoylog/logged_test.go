package envoylog

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslog "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
)

var at = &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: "10.0.0.1",
	PortSpecifier: &core.SocketAddress_PortValue{PortValue: 80}}}}

// A request for which Envoy had no healthy endpoint is no instance's, and is told.
func TestNoEndpointIsHealthy(t *testing.T) {
	refused := &accesslog.HTTPAccessLogEntry{CommonProperties: &accesslog.AccessLogCommon{
		ResponseFlags: &accesslog.ResponseFlags{NoHealthyUpstream: true}}}
	if l := read(refused); !l.unserved || l.address != "" {
		t.Errorf("%+v", l)
	}
	answered := &accesslog.HTTPAccessLogEntry{CommonProperties: &accesslog.AccessLogCommon{UpstreamRemoteAddress: at}}
	if l := read(answered); l.unserved || l.address != "10.0.0.1:80" {
		t.Errorf("%+v", l)
	}
}

// An entry about a request in progress, or about one attempt, is not its end.
func TestARequestInProgressIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var got quell.Reading
		in := balancer.Service{Name: "shop", Period: time.Second, Logger: slog.New(slog.DiscardHandler)}
		i := NewIntake([]string{"web"}, "", &Loads{}, in, func(list []quell.Reading) { got = list[0]; cancel() })
		entry := func(kind accesslog.AccessLogType) {
			i.count(read(&accesslog.HTTPAccessLogEntry{CommonProperties: &accesslog.AccessLogCommon{UpstreamRemoteAddress: at,
				TimeToFirstUpstreamRxByte: durationpb.New(time.Millisecond), TimeToLastUpstreamRxByte: durationpb.New(time.Second),
				AccessLogType: kind},
				Response: &accesslog.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(200)}}))
		}
		entry(accesslog.AccessLogType_DownstreamPeriodic)
		entry(accesslog.AccessLogType_DownstreamPeriodic)
		entry(accesslog.AccessLogType_DownstreamStart)
		entry(accesslog.AccessLogType_UpstreamEnd)
		entry(accesslog.AccessLogType_DownstreamEnd)
		i.Run(ctx, func(context.Context) map[string][]string { return map[string][]string{"a": {"10.0.0.1:80"}} },
			func() error { return nil })
		if latency := got.Observation.LatencyMS; got.Requests != 1 || latency == nil || latency.N != 1 {
			t.Errorf("%+v, response times %+v", got, latency)
		}
	})
}
