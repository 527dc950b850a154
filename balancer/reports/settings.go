package reports

import (
	"context"
	"path/filepath"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/setting"
)

// Kind is any balancer that follows load reports (ORCA), such as Envoy and clients of gRPC.
var Kind = balancer.Kind{
	Name: "reports", About: "balancers that compute weights from the agents' load reports (ORCA)",
	Defaults: func() balancer.Settings {
		return &Settings{Health: health.Options{Path: "/healthz", Interval: time.Second, Timeout: time.Second, Fall: 2, Rise: 2}}
	},
}

// Settings are its configuration.
type Settings struct{ Health health.Options }

// Keys returns the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Opt("health", s.Health.Keys(), "how the controller checks instances; balancers need checks of their own"),
	}
}

// Check does nothing, because no keys can contradict each other.
func (s *Settings) Check(*setting.Decoder) {}

// Notes says what cannot be done without a driver.
func (s *Settings) Notes() []string { return []string{limits} }

// limits is what people must know of this kind.
const limits = "balancer.kind is reports: balancers follow the agents' load reports, and Quell cannot ask or tell them anything. " +
	"Response times are measured only if agents read them from the service (agent.requests); else capacities come from trained models. " +
	"A drained instance gets almost no requests, but nobody says when its last one has ended. Instances that start or stop must be made " +
	"known to balancers by others. See docs/balancers/reports.md"

// Distributes returns the rule by which requests are distributed: clients take turns by weight.
func (s *Settings) Distributes() quell.Scheduling { return quell.RoundRobin }

// Where says who sets weights, as text for people.
func (s *Settings) Where() string { return "of the agents" }

// New makes the driver.
func (s *Settings) New(in balancer.Service) (balancer.Driver, error) {
	return balancer.Made(New(Options{Tell: in.Tell, Period: in.Period, Drain: in.Drain, Health: s.Health,
		Memory: filepath.Join(in.Data, "reports.json"), Logger: in.Logger}))
}

// CheckHealth makes one health check of an instance in the same way as the controller.
func (s *Settings) CheckHealth(ctx context.Context, address string) (asked string, err error) {
	return "GET " + s.Health.Path, health.NewChecker(s.Health, nil, make(chan struct{}, 1)).Check(ctx, address)
}
