package reports

import (
	"context"
	"path/filepath"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/envoylog"
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
type Settings struct {
	Health health.Options
	Log    envoylog.Settings // where Envoys send their access log; without an address: nowhere
}

// Keys returns the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Opt("health", s.Health.Keys(), "how the controller checks instances; balancers need checks of their own"),
		setting.Opt("log", s.Log.Keys("address to which Envoys connect with their access log and load reports",
			"names of the clusters whose endpoints are the instances"),
			"how Envoys tell their requests, so that response times are measured").Or("none: response times are not measured"),
	}
}

// Check reports keys that contradict each other.
func (s *Settings) Check(d *setting.Decoder) { s.Log.Check(d, "balancer.log.") }

// Files returns the paths that are relative to the configuration.
func (s *Settings) Files(string) []*string { return s.Log.Files() }

// Manages names the listener. No two services can use the same.
func (s *Settings) Manages() []string {
	if s.Log.Listen == "" {
		return nil
	}
	return []string{"listener " + s.Log.Listen}
}

// Notes says what cannot be done without a driver.
func (s *Settings) Notes() []string {
	about := unmeasured
	if s.Log.Listen != "" {
		about = "A drained instance gets almost no requests. "
	}
	return []string{"balancer.kind is reports: balancers follow the agents' load reports, and Quell cannot tell them anything. " + about +
		"Instances that start or stop must be made known to balancers by others. See docs/balancers/reports.md"}
}

// unmeasured is what people must know without a log.
const unmeasured = "Response times are measured only if Envoy sends its log (balancer.log) or agents read them from the service " +
	"(agent.requests); else capacities come from trained models. A drained instance gets almost no requests, but nobody says when its last " +
	"one has ended. "

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

// Measure takes Envoys' access log, makes readings from it, and publishes them until the meter is stopped. Without a log it returns nil.
func (s *Settings) Measure(driver balancer.Driver, in balancer.Service, publish func([]quell.Reading)) (balancer.Meter, error) {
	if s.Log.Listen == "" {
		return nil, nil
	}
	return measure(driver.(*Driver), &s.Log, in, publish)
}
