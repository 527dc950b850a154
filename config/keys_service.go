package config

import (
	"time"

	"github.com/quellhq/quell"
)

// policies lists the policies that can be chosen.
func policies() []string { return []string{"prima", "lsf", "lr", "static", "hpa", "knapsack"} }

// policyName is the name of a policy. Four more are known from papers and not supported.
func policyName(dst *string) value { return oneOf(dst, policies(), "dial", "ice", "acs", "mrburst") }

// scheduling is the name of a balancer's scheduling.
func scheduling(dst *quell.Scheduling) value { return oneOf(dst, quell.Schedulings) }

// serviceKeys is the part of a configuration that every policy shares, also the service of a scenario.
func serviceKeys(s *quell.Service) section {
	return section{
		req("service", serviceName(&s.Name), "name of the service"),
		req("slo", sloKeys(&s.SLO), "the response-time objective that must hold at every instance"),
		opt("sampling", duration(&s.Sampling).between(10*time.Millisecond, time.Hour), "sampling period T: one snapshot and one plan each"),
		opt("policy", policyKeys(&s.Policy), "the policy and its settings"),
		opt("group", groupKeys(&s.Group), "bounds of the number of instances"),
		opt("guard", guardKeys(&s.Guard), "limits to what any policy may do"),
		opt("mode", oneOf(&s.Mode, quell.Modes), "act: carry plans out; advise: only record them"),
	}
}

func sloKeys(s *quell.SLO) section {
	return section{
		req("metric", oneOf(&s.Metric, quell.Metrics), "statistic of response time: mean, p50, p90, p95 or p99"),
		req("threshold", duration(&s.Threshold).above(0), "response time that the metric must not exceed"),
	}
}

func policyKeys(p *quell.Policy) section {
	return section{
		opt("name", policyName(&p.Name), "prima, lsf, lr, static, hpa or knapsack"),
		opt("resource", oneOf(&p.Resource, quell.Resources), "the resource that is contended for: cpu, network, disk or memory"),
		opt("interference_model", oneOf(&p.InterferenceModel, quell.InterferenceModels), "total: one curve of total utilisation over severity; joint: severity over own and interfering use"),
		opt("confidence", share(&p.Confidence).above(0.5).below(1), "of the one-sided test that tells interference from chance"),
		opt("confirm", whole(&p.Confirm).between(0, 1000), "W: act on the (W+1)th snapshot in a row that asks for it, and treat interference as gone after as many snapshots without it"),
		opt("headroom", share(&p.Headroom).above(0).between(0, 1), "load may reach this share of the summed capacity"),
		opt("scale_in_margin", share(&p.ScaleInMargin).atLeast(0).below(1), "scale in only if the kept capacity still leaves this much"),
		opt("scale_out", oneOf(&p.ScaleOut, quell.ScaleOuts), "one: one instance at a time; predicted: as many as the shortfall asks for"),
		opt("tolerance", share(&p.Tolerance).atLeast(0).below(1), "no weight moves by less than this share of itself"),
		opt("spare", whole(&p.Spare).atLeast(0), "extra instances kept, as a factor of safety"),
		opt("calibrate", share(&p.Calibrate).atLeast(0).below(1), "correct the severity when the prediction is this near the threshold; 0% turns it off"),
		opt("calibration_decay", share(&p.CalibrationDecay).between(0, 1), "share of a correction that is forgotten per period"),
		opt("utilization", share(&p.Utilization).between(0, 1), "static: add an instance above this mean utilisation; 0% never does. hpa: the target; 0% is 80%"),
	}
}

func groupKeys(g *quell.Group) section {
	return section{
		opt("min", whole(&g.Min).atLeast(1), "fewest instances"),
		opt("max", whole(&g.Max).between(1, 100_000), "most instances"),
		opt("initial", whole(&g.Initial).between(0, 100_000), "instances started where there are none yet; from min to max").or("min"),
		opt("startup", duration(&g.Startup).above(0), "how long an instance may take to become ready"),
		opt("protected", idents(&g.Protected), "ids of instances that are never removed or replaced"),
	}
}

func guardKeys(g *quell.Guard) section {
	return section{
		opt("floor", share(&g.Floor).between(0, 1), "least weight, as a share of an equal one; 0 turns it off"),
		opt("step", share(&g.Step).atLeast(0), "largest change of a weight at once, as a share of an equal one; 0 turns it off"),
		opt("slow_start", duration(&g.SlowStart).atLeast(0), "time over which a new instance's weight grows; 0s turns it off"),
		opt("stale_after", whole(&g.StaleAfter).atLeast(0), "periods without a reading until an instance is stale; 0 turns it off"),
		opt("fade", whole(&g.Fade).atLeast(0), "further periods over which a stale instance moves to an equal share"),
		opt("error_rate", share(&g.ErrorRate).between(0, 1), "an instance with more errors never gains weight; 0% turns it off"),
	}
}
