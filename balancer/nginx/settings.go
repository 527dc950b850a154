package nginx

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/balancer/nginx/include"
	"github.com/quellhq/quell/setting"
)

// Kind is an nginx on the controller's machine.
var Kind = balancer.Kind{
	Name: "nginx", About: "an nginx that runs already, on the controller's machine",
	Defaults: func() balancer.Settings {
		return &Settings{PID: "/run/nginx.pid", Every: 30 * time.Second,
			Health: health.Options{Path: "/healthz", Interval: time.Second, Timeout: time.Second, Fall: 2, Rise: 2}}
	},
}

// Settings are its configuration.
type Settings struct {
	Include  string           // the file of the upstream's servers
	PID      string           // the file with the number of nginx's master process
	Test     []string         // program that checks nginx's configuration; empty: nginx -t
	Reload   []string         // program that makes nginx read its configuration; empty: the signal HUP
	Server   string           // parameters of the servers of instances that come and go
	Every    time.Duration    // shortest time between two reloads that only change weights
	Log      string           // where nginx's log arrives: a path or host:port; empty: no log
	Upstream string           // name of the upstream; empty: unknown
	Balance  quell.Scheduling // the upstream's algorithm; empty: unknown
	Health   health.Options
}

// Keys returns the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Opt("health", s.Health.Keys(), "how the controller checks instances, because nginx only notices failing requests"),
		setting.Req("nginx", setting.Table{
			setting.Req("include", setting.Text(&s.Include), "file of the upstream's servers, which nginx's configuration includes"),
			setting.Opt("log", setting.PathOrAddress(&s.Log),
				"where nginx sends its log in the format quell: a path for a Unix datagram socket, or host:port for UDP").
				Or("none: response times are not measured"),
			setting.Opt("upstream", setting.Text(&s.Upstream),
				"name of the upstream, if others log to the same place: requests that found no server are told apart by it").
				Or("unknown: they count until a second upstream had no server"),
			setting.Opt("balance", setting.OneOf(&s.Balance, Balances),
				"the upstream's algorithm: what a group can carry is learned sooner; leastconn stands for least_conn, random2 for random two").
				Or("unknown"),
			setting.Opt("server", setting.Text(&s.Server).Then(include.Parameters),
				"more parameters of servers that Quell adds, as in max_fails=2 fail_timeout=5s").Or("none"),
			setting.Opt("reload_every", setting.Duration(&s.Every).Above(0), "shortest time between two reloads that only change weights"),
			setting.Opt("pid", setting.Text(&s.PID), "file with the number of nginx's master process"),
			setting.Opt("test", setting.Command(&s.Test), "program that checks nginx's configuration before each reload").Or("nginx -t"),
			setting.Opt("reload", setting.Command(&s.Reload), "program that reloads nginx").Or("the signal HUP to the master process"),
		}, "how to reach nginx, and the file that Quell may change"),
	}
}

// Balances are the algorithms of nginx that are known to Quell.
var Balances = []quell.Scheduling{quell.RoundRobin, quell.LeastConn, quell.Random2}

// Distributes returns the rule by which requests are distributed; empty if it is unknown.
func (s *Settings) Distributes() quell.Scheduling { return s.Balance }

// Check does nothing, because no keys can contradict each other.
func (s *Settings) Check(*setting.Decoder) {}

// Where returns the include file, as text for people.
func (s *Settings) Where() string { return s.Include }

// Manages names the include file, and where nginx's log arrives. No two services can use the same.
func (s *Settings) Manages() []string {
	names := []string{"file " + s.Include}
	if s.Log != "" {
		names = append(names, "log at "+s.Log)
	}
	return names
}

// Files returns the paths that are relative to the configuration.
func (s *Settings) Files(string) []*string { return []*string{&s.Include, &s.PID} }

func (s *Settings) options(in balancer.Service) Options {
	return Options{
		Include: s.Include, PID: s.PID, Test: s.Test, Reload: s.Reload, Server: strings.Fields(s.Server), Every: s.Every, Name: in.Name,
		Members: in.Members, Memory: filepath.Join(in.Data, "nginx.json"), Logger: in.Logger,
	}
}

// New makes the driver.
func (s *Settings) New(in balancer.Service) (balancer.Driver, error) {
	return balancer.Made(New(s.options(in)))
}

// Parts returns one part, which reports the servers.
func (s *Settings) Parts(in balancer.Service) []balancer.Part {
	return []balancer.Part{{
		About: "nginx: servers in " + s.Include,
		Open: func() (balancer.Driver, error) {
			o := s.options(in)
			o.Memory, o.Logger = "", slog.New(slog.DiscardHandler)
			return balancer.Made(New(o))
		},
	}}
}

// CheckHealth makes one health check of an instance in the same way as the controller.
func (s *Settings) CheckHealth(ctx context.Context, address string) (asked string, err error) {
	return "GET " + s.Health.Path, health.NewChecker(s.Health, nil, make(chan struct{}, 1)).Check(ctx, address)
}
