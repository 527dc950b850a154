package reports_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/orca"
	"github.com/quellhq/quell/examples/reports"
	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/need"
)

const patience = time.Minute

// agentOf is the agent of a machine, and a client of it.
func agentOf(t *testing.T) (*orca.Reports, orcaservice.OpenRcaServiceClient) {
	t.Helper()
	r := orca.New(time.Now, slog.New(slog.DiscardHandler))
	r.Serve([]string{"shop"})
	address := need.FreeAddress(t)
	stop, err := r.Listen(address, certfile.Files{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return r, orcaservice.NewOpenRcaServiceClient(conn)
}

// counting is a gRPC service that counts its calls.
type counting struct {
	grpc_health_v1.HealthServer
	calls atomic.Int64
}

func (c *counting) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	c.calls.Add(1)
	return c.HealthServer.Check(ctx, r)
}

// TestClientsOfGRPCFollowTheAgents calls two servers by gRPC's own weighted round robin.
func TestClientsOfGRPCFollowTheAgents(t *testing.T) {
	t.Parallel()
	var agents []*orca.Reports
	var servers []*counting
	var endpoints []resolver.Endpoint
	for range 2 {
		agent, client := agentOf(t)
		server, service := grpc.NewServer(), &counting{HealthServer: health.NewServer()}
		grpc_health_v1.RegisterHealthServer(server, service)
		orcaservice.RegisterOpenRcaServiceServer(server, reports.Relay{Agent: client})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
		agents, servers = append(agents, agent), append(servers, service)
		endpoints = append(endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: listener.Addr().String()}}})
	}
	names := manual.NewBuilderWithScheme("shop")
	names.InitialState(resolver.State{Endpoints: endpoints})
	const policy = `{"loadBalancingConfig": [{"weighted_round_robin": {"enableOobLoadReport": true, "oobReportingPeriod": "1s",
		"blackoutPeriod": "0s", "weightExpirationPeriod": "3s", "weightUpdatePeriod": "0.1s"}}]}`
	conn, err := grpc.NewClient("shop:///all", grpc.WithResolvers(names), grpc.WithDefaultServiceConfig(policy),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	shares := func(what string, want float64) {
		t.Helper()
		const calls, near = 100, .04
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			servers[0].calls.Store(0)
			for range calls {
				if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
					t.Fatalf("%s: a call failed: %v", what, err)
				}
			}
			got := float64(servers[0].calls.Load()) / calls
			if math.Abs(got-want) < near {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the first server gets %v, want %v", what, got, want)
			}
		}
	}
	tell := func(validS, first float64) {
		agents[0].Tell("shop", quell.LoadReport{Share: first, ValidS: validS})
		agents[1].Tell("shop", quell.LoadReport{Share: 1 - first, ValidS: validS})
	}
	shares("without a controller", .5)
	tell(3600, .2)
	shares("one is disturbed", .2)
	tell(3600, 0)
	shares("it drains", 0)
	tell(3600, .7)
	shares("it is back", .7)
	tell(.001, .7)
	shares("the controller is gone", .5)
}

func TestHeader(t *testing.T) {
	t.Parallel()
	agent, client := agentOf(t)
	agent.Observe(map[quell.Resource]float64{quell.CPU: .25})
	agent.Tell("shop", quell.LoadReport{Share: .5, Resource: quell.CPU, Capacity: new(.5), ValidS: 3600})
	h := &reports.Header{Handler: http.NotFoundHandler()}
	go func() { _ = h.Follow(t.Context(), client) }()
	web := httptest.NewServer(h)
	defer web.Close()
	want := fmt.Sprintf("TEXT cpu_utilization=0.25,application_utilization=0.5,rps_fractional=%g", .5*.5*1e6)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(web.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := strings.Join(resp.Header.Values("endpoint-load-metrics"), " "); got == want {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("the header is %q, want %q", got, want)
		}
	}
}
