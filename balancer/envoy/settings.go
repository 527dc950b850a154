package envoy

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/envoylog"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/setting"
)

// Kind is one or several Envoys that ask the controller for the endpoints of clusters.
var Kind = balancer.Kind{
	Name: "envoy", About: "Envoys that run already and get their endpoints from the controller",
	Defaults: func() balancer.Settings {
		return &Settings{Health: health.Options{Path: "/healthz", Interval: time.Second, Timeout: time.Second, Fall: 2, Rise: 2}}
	},
}

// Settings are their configuration.
type Settings struct {
	envoylog.Settings
	Scheduling quell.Scheduling
	Health     health.Options
}

// Keys returns the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Opt("health", s.Health.Keys(), "how the controller checks instances; Envoys send no requests to those that fail"),
		setting.Req("envoy", append(s.Settings.Keys("address to which Envoys connect for endpoints, and with their access log and load reports",
			"names of the clusters (or their service_name) whose endpoints are the instances; others are never touched"),
			setting.Opt("balance", setting.OneOf(&s.Scheduling, Balances),
				"lb_policy of the clusters: what a group can carry is learned sooner; leastconn stands for LEAST_REQUEST").
				Or("unknown"),
		), "how Envoys reach the controller, and their clusters"),
	}
}

// Balances are the policies of Envoy that are known to Quell.
var Balances = []quell.Scheduling{quell.RoundRobin, quell.LeastConn}

// Distributes returns the rule by which requests are distributed; empty if it is unknown.
func (s *Settings) Distributes() quell.Scheduling { return s.Scheduling }

// Check reports keys that contradict each other.
func (s *Settings) Check(d *setting.Decoder) { s.Settings.Check(d, "balancer.envoy.") }

// Where returns the address and the clusters, as text for people.
func (s *Settings) Where() string { return s.Listen + " " + strings.Join(s.Clusters, ",") }

// Manages names the listener. No two services can use the same.
func (s *Settings) Manages() []string { return []string{"listener " + s.Listen} }

// Files returns the paths that are relative to the configuration.
func (s *Settings) Files(string) []*string { return s.Settings.Files() }

// New makes the driver.
func (s *Settings) New(in balancer.Service) (balancer.Driver, error) {
	return balancer.Made(New(Options{Clusters: s.Clusters, Members: in.Members, Drain: in.Drain, Memory: filepath.Join(in.Data, "envoy.json"),
		Logger: in.Logger}))
}

// CheckHealth makes one health check of an instance in the same way as the controller.
func (s *Settings) CheckHealth(ctx context.Context, address string) (asked string, err error) {
	return "GET " + s.Health.Path, health.NewChecker(s.Health, nil, make(chan struct{}, 1)).Check(ctx, address)
}

// Measure serves endpoints to Envoys, makes readings from what they report, and publishes them until the meter is stopped.
func (s *Settings) Measure(driver balancer.Driver, in balancer.Service, publish func([]quell.Reading)) (balancer.Meter, error) {
	return serve(driver.(*Driver), s, in, publish)
}
