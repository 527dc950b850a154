package envoy

import (
	"context"
	"log/slog"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/envoylog"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/internal/need"
)

// An Envoy that asks by DELTA_GRPC and connects again says which versions it has. Even if they are the present ones it counts as having the
// endpoints.
func TestADeltaStreamComesBack(t *testing.T) {
	d, err := New(Options{Clusters: []string{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	s := Settings{Settings: envoylog.Settings{Listen: need.FreeAddress(t), Clusters: []string{"web"}},
		Health: health.Options{Interval: time.Hour, Timeout: time.Second, Fall: 1, Rise: 1}}
	in := balancer.Service{Name: "shop", Balancer: "envoy", Period: time.Hour, Logger: slog.New(slog.DiscardHandler)}
	v, err := serve(d, &s, in, func([]quell.Reading) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Stop)
	a := newInstance(t, nil)
	if err := d.Apply(t.Context(), []quell.Backend{backend("a", a, 1)}); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(s.Listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	var known map[string]string // versions
	for range 2 {
		ctx, leave := context.WithCancel(t.Context())
		stream, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(ctx, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "front"}, TypeUrl: resource.EndpointType,
			ResourceNamesSubscribe: []string{"web"}, InitialResourceVersions: known})
		if err != nil {
			t.Fatal(err)
		}
		versions := make(chan map[string]string, 1)
		go func() {
			for got := map[string]string{}; ; {
				r, err := stream.Recv()
				if err != nil {
					versions <- got
					return
				}
				for _, one := range r.GetResources() {
					got[one.GetName()] = one.GetVersion()
				}
				_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResponseNonce: r.GetNonce()})
			}
		}()
		eventually(t, "the Envoy is there", func() bool { return d.fleet.err("") == nil })
		eventually(t, "the endpoints are in force", func() bool { return stateOf(t, d, "a").Address == a.address() })
		leave()
		known = <-versions
		eventually(t, "the Envoy is gone", func() bool { return d.fleet.err("") != nil })
	}
	if known["web"] == "" {
		t.Errorf("versions are %v", known)
	}
}
