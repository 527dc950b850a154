package config

import (
	"fmt"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/keys"
)

// policies lists the policies that can be chosen.
func policies() []string { return []string{"prima", "lsf", "lr", "static", "hpa", "knapsack"} }

// PolicyName is the name of a policy. Four more are known from papers and not supported.
func PolicyName(dst *string) keys.Value {
	return keys.OneOf(dst, policies(), "dial", "ice", "acs", "mrburst")
}

// Scheduling is the name of a balancer's scheduling.
func Scheduling(dst *quell.Scheduling) keys.Value { return keys.OneOf(dst, quell.Schedulings) }

// ServiceKeys is the part of a configuration that every policy shares, also the service of a scenario.
func ServiceKeys(s *quell.Service) keys.Table {
	return keys.Table{
		keys.Req("service", serviceName(&s.Name), "name of the service"),
		keys.Req("slo", sloKeys(&s.SLO), "the response-time objective that must hold at every instance"),
		keys.Opt("sampling", keys.Duration(&s.Sampling).Between(10*time.Millisecond, time.Hour), "sampling period T: one snapshot and one plan each"),
		keys.Opt("policy", policyKeys(&s.Policy), "the policy and its settings"),
		keys.Opt("group", groupKeys(&s.Group), "bounds of the number of instances"),
		keys.Opt("guard", guardKeys(&s.Guard), "limits to what any policy may do"),
		keys.Opt("mode", keys.OneOf(&s.Mode, quell.Modes), "act: carry plans out; advise: only record them"),
	}
}

func sloKeys(s *quell.SLO) keys.Table {
	return keys.Table{
		keys.Req("metric", keys.OneOf(&s.Metric, quell.Metrics), "statistic of response time: mean, p50, p90, p95 or p99"),
		keys.Req("threshold", keys.Duration(&s.Threshold).Above(0), "response time that the metric must not exceed"),
	}
}

func policyKeys(p *quell.Policy) keys.Table {
	return keys.Table{
		keys.Opt("name", PolicyName(&p.Name), "prima, lsf, lr, static, hpa or knapsack"),
		keys.Opt("resource", keys.OneOf(&p.Resource, quell.Resources), "the resource that is contended for: cpu, network, disk or memory"),
		keys.Opt("interference_model", keys.OneOf(&p.InterferenceModel, quell.InterferenceModels), "total: one curve of total utilisation over severity; joint: severity over own and interfering use"),
		keys.Opt("confidence", keys.Share(&p.Confidence).Above(0.5).Below(1), "of the one-sided test that tells interference from chance"),
		keys.Opt("confirm", keys.Whole(&p.Confirm).Between(0, 1000), "W: act on the (W+1)th snapshot in a row that asks for it, and treat interference as gone after as many snapshots without it"),
		keys.Opt("headroom", keys.Share(&p.Headroom).Above(0).Between(0, 1), "load may reach this share of the summed capacity"),
		keys.Opt("scale_in_margin", keys.Share(&p.ScaleInMargin).AtLeast(0).Below(1), "scale in only if the kept capacity still leaves this much"),
		keys.Opt("scale_out", keys.OneOf(&p.ScaleOut, quell.ScaleOuts), "one: one instance at a time; predicted: as many as the shortfall asks for"),
		keys.Opt("tolerance", keys.Share(&p.Tolerance).AtLeast(0).Below(1), "no weight moves by less than this share of itself"),
		keys.Opt("spare", keys.Whole(&p.Spare).AtLeast(0), "extra instances kept, as a factor of safety"),
		keys.Opt("calibrate", keys.Share(&p.Calibrate).AtLeast(0).Below(1), "correct the severity when the prediction is this near the threshold; 0% turns it off"),
		keys.Opt("calibration_decay", keys.Share(&p.CalibrationDecay).Between(0, 1), "share of a correction that is forgotten per period"),
		keys.Opt("utilization", keys.Share(&p.Utilization).Between(0, 1), "static: add an instance above this mean utilisation; 0% never does. hpa: the target; 0% is 80%"),
	}
}

func groupKeys(g *quell.Group) keys.Table {
	return keys.Table{
		keys.Opt("min", keys.Whole(&g.Min).AtLeast(1), "fewest instances"),
		keys.Opt("max", keys.Whole(&g.Max).Between(1, 100_000), "most instances"),
		keys.Opt("initial", keys.Whole(&g.Initial).Between(0, 100_000), "instances started where there are none yet; from min to max").Or("min"),
		keys.Opt("startup", keys.Duration(&g.Startup).Above(0), "how long an instance may take to become ready"),
		keys.Opt("protected", keys.Idents(&g.Protected), "ids of instances that are never removed or replaced"),
	}
}

func guardKeys(g *quell.Guard) keys.Table {
	return keys.Table{
		keys.Opt("floor", keys.Share(&g.Floor).Between(0, 1), "least weight, as a share of an equal one; 0 turns it off"),
		keys.Opt("step", keys.Share(&g.Step).AtLeast(0), "largest change of a weight at once, as a share of an equal one; 0 turns it off"),
		keys.Opt("slow_start", keys.Duration(&g.SlowStart).AtLeast(0), "time over which a new instance's weight grows; 0s turns it off"),
		keys.Opt("stale_after", keys.Whole(&g.StaleAfter).AtLeast(0), "periods without a reading until an instance is stale; 0 turns it off"),
		keys.Opt("fade", keys.Whole(&g.Fade).AtLeast(0), "further periods over which a stale instance moves to an equal share"),
		keys.Opt("error_rate", keys.Share(&g.ErrorRate).Between(0, 1), "an instance with more errors never gains weight; 0% turns it off"),
	}
}

// longestService is what the bus takes of a service's name, in bytes.
const longestService = 64

func serviceName(dst *string) *keys.Scalar[string] {
	return keys.Ident(dst).Then(func(s string) string {
		if len(s) > longestService {
			return fmt.Sprintf("must not be longer than %d characters, which is what the bus takes", longestService)
		}
		return ""
	})
}
