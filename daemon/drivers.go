package daemon

import (
	"log/slog"

	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/builtin"
	balancercommand "github.com/quellhq/quell/balancer/command"
	"github.com/quellhq/quell/balancer/envoy"
	"github.com/quellhq/quell/balancer/haproxy"
	"github.com/quellhq/quell/balancer/lvs"
	"github.com/quellhq/quell/balancer/nginx"
	"github.com/quellhq/quell/balancer/reports"
	"github.com/quellhq/quell/config"
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

// Drivers is the table of the balancers, scalers, servers with settings and providers of credits that a configuration can name. A driver's
// keys and constructor are in its package.
func Drivers() config.Drivers {
	return config.Drivers{
		Balancers: []balancer.Kind{
			builtin.Kind,
			balancercommand.Kind,
			envoy.Kind,
			haproxy.Kind,
			lvs.Kind,
			nginx.Kind,
			reports.Kind,
		},
		Scalers: []scaler.Kind{
			fixed.Kind,
			aws.Kind,
			dns.Kind,
			kubernetes.Kind,
			process.Kind,
			scalercommand.Kind,
		},
		Servers: []middleware.Kind{
			middleware.Apache,
			middleware.PHPFPM,
			middleware.Nginx,
			middleware.Template,
		},
		Credits: []credits.Kind{
			cloudwatch.Kind,
		},
	}
}

// serviceOf is what a balancer's driver needs to know about its service.
func serviceOf(file *config.File, log *slog.Logger) balancer.Service {
	members, _ := file.Scaler.Listed()
	return balancer.Service{
		Name: file.Service.Name, Balancer: file.Balancer.Name, Data: file.Data, Members: members,
		Period: file.Service.Sampling, Fast: file.Service.Policy.Fast.Sampling, Drain: file.Balancer.Drain,
		Metric: file.Service.SLO.Metric, Classes: file.Balancer.Classes, FirstByte: file.Service.SLO.FirstByte, Logger: log,
	}
}
