package config

import (
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/balancer/command"
	"github.com/quellhq/quell/balancer/envoy"
	"github.com/quellhq/quell/balancer/haproxy"
	"github.com/quellhq/quell/balancer/lvs"
	"github.com/quellhq/quell/balancer/nginx"
	"github.com/quellhq/quell/balancer/reports"
	"github.com/quellhq/quell/middleware"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/scaler/aws"
	scalercommand "github.com/quellhq/quell/scaler/command"
	"github.com/quellhq/quell/scaler/dns"
	"github.com/quellhq/quell/scaler/fixed"
	"github.com/quellhq/quell/scaler/kubernetes"
	"github.com/quellhq/quell/scaler/process"
	"github.com/quellhq/quell/sensor/credits"
	"github.com/quellhq/quell/sensor/credits/cloudwatch"
)

// drivers are those that the tests' files name. The full table is in package daemon, which this package does not import.
var drivers = Drivers{
	Balancers: []balancer.Kind{builtin.Kind, command.Kind, envoy.Kind, haproxy.Kind, lvs.Kind, nginx.Kind, reports.Kind},
	Scalers:   []scaler.Kind{fixed.Kind, aws.Kind, dns.Kind, kubernetes.Kind, process.Kind, scalercommand.Kind},
	Servers:   []middleware.Kind{middleware.Apache, middleware.PHPFPM, middleware.Nginx, middleware.Template},
	Credits:   []credits.Kind{cloudwatch.Kind},
}
