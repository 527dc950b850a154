package envoy

import (
	"log/slog"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// If no Envoy asks for a cluster of the configuration, the error names it and the clusters that Envoys ask for, in both protocols.
func TestAClusterThatNobodyHas(t *testing.T) {
	f := newFleet(slog.New(slog.DiscardHandler), []string{"api", "shpo"})
	f.opened(1)
	f.takes(1, &discovery.DiscoveryRequest{Node: &core.Node{Id: "front"}, ResourceNames: []string{"shop"}})
	f.opened(-2)
	f.takesDelta(-2, &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "front"}, ResourceNamesSubscribe: []string{"api"}})
	if err := f.err(""); !contains(err, "cluster shpo: they ask for api, shop;") || contains(err, "cluster api") {
		t.Error(err)
	}
	f.takes(1, &discovery.DiscoveryRequest{ResourceNames: []string{"shpo"}})
	if err := f.err(""); err != nil {
		t.Error(err)
	}
}
