package envoylog

import (
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslog "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
)

// A request for which Envoy had no healthy endpoint is no instance's, and is told.
func TestNoEndpointIsHealthy(t *testing.T) {
	refused := &accesslog.HTTPAccessLogEntry{CommonProperties: &accesslog.AccessLogCommon{
		ResponseFlags: &accesslog.ResponseFlags{NoHealthyUpstream: true}}}
	if l := read(refused); !l.unserved || l.address != "" {
		t.Errorf("%+v", l)
	}
	at := &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: "10.0.0.1",
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: 80}}}}
	answered := &accesslog.HTTPAccessLogEntry{CommonProperties: &accesslog.AccessLogCommon{UpstreamRemoteAddress: at}}
	if l := read(answered); l.unserved || l.address != "10.0.0.1:80" {
		t.Errorf("%+v", l)
	}
}
