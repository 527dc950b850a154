package host

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
)

func newFailures() *prometheus.CounterVec {
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "quell", Subsystem: "agent", Name: "policy_failures_total",
		Help: "Failures of the host policy's loop: reading, a plan that nothing carries out, a limit that is not in force, journal, memory.",
	}, []string{"part"})
	for _, part := range []string{readPart, guardPart, limitPart, journalPart, memoryPart} {
		failures.WithLabelValues(part)
	}
	return failures
}

func register(r prometheus.Registerer, collectors ...prometheus.Collector) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, c := range collectors {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

var (
	decisionsMetric = prometheus.NewDesc("quell_agent_policy_decisions_total", "Decisions of the host policy.", nil, nil)
	groupsMetric    = prometheus.NewDesc("quell_agent_groups", "Control groups that were read.", nil, nil)
	waitsMetric     = prometheus.NewDesc("quell_agent_group_waits",
		"Share of the time it wanted to run that a control group waited, by cause.",
		[]string{"group", "cause"}, nil)
	slowdownMetric = prometheus.NewDesc("quell_agent_group_slowdown",
		"Time per unit of work of a control group, over that of the group alone.", []string{"group"}, nil)
	correlationMetric = prometheus.NewDesc("quell_agent_group_correlation",
		"Correlation of the slowdowns that a control group reported with how long its tasks waited for processors.", []string{"group"}, nil)
	limitMetric = prometheus.NewDesc("quell_agent_group_limit",
		"Limit that the last plan sets for a control group, in the unit of the resource.", []string{"group", "resource"}, nil)
)

// collector exports the last decision as metrics.
type collector struct{ home *Home }

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	out <- decisionsMetric
	out <- groupsMetric
	out <- waitsMetric
	out <- slowdownMetric
	out <- correlationMetric
	out <- limitMetric
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.home.Status()
	out <- prometheus.MustNewConstMetric(decisionsMetric, prometheus.CounterValue, float64(s.Decisions))
	out <- prometheus.MustNewConstMetric(groupsMetric, prometheus.GaugeValue, float64(len(s.Groups)))
	if s.Plan == nil {
		return
	}
	for group, t := range s.Plan.Tenants {
		for metric, value := range map[*prometheus.Desc]*float64{slowdownMetric: t.Slowdown, correlationMetric: t.Correlation} {
			if value != nil {
				out <- prometheus.MustNewConstMetric(metric, prometheus.GaugeValue, *value, strings.ToValidUTF8(group, "?"))
			}
		}
	}
	for _, l := range s.Plan.Limits {
		what := string(l.Resource)
		if l.Unit == quell.WeightUnit {
			what += "_" + quell.WeightUnit
		}
		out <- prometheus.MustNewConstMetric(limitMetric, prometheus.GaugeValue, l.Value, strings.ToValidUTF8(l.Instance, "?"), what)
	}
	for group, w := range s.Plan.Waits {
		for cause, share := range map[string]*float64{"own": w.Own, "quota": w.Quota, "neighbours": w.Neighbours, "hypervisor": w.Hypervisor} {
			if share != nil {
				out <- prometheus.MustNewConstMetric(waitsMetric, prometheus.GaugeValue, *share, strings.ToValidUTF8(group, "?"), cause)
			}
		}
	}
}
