package controller

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
)

// exclude says in the snapshot why its period shows nothing about decisions.
func (c *deciding) exclude(s *quell.Snapshot) {
	if c.opts.Service.SLO.Target == 0 {
		return
	}
	switch s.Excluded = c.idle(); {
	case s.Excluded != "":
	case len(c.mem.Replacing) > 0:
		s.Excluded = "instances are being replaced"
	case c.comparedTurn() != nil:
		s.Excluded = "a comparison hands control back in turns"
	case len(c.mem.Temporary.Overrides) > 0:
		s.Excluded = "a share is set for a time"
	}
}

// account enters a period into the error budget.
func (c *board) account(ctx context.Context, s *quell.Snapshot, plan *quell.Plan) {
	slo := c.opts.Service.SLO
	v := budget.Judge(&c.opts.Service, s)
	c.totals.judged(&v, c.opts.Service.Sampling)
	if !c.leading {
		return
	}
	if slo.Target == 0 {
		c.mem.Budget = nil
		return
	}
	if c.mem.Budget == nil {
		c.mem.Budget = &budget.Ledger{}
	}
	ledger, begun := c.mem.Budget.For(slo)
	if begun {
		c.event(ctx, fmt.Sprintf("the error budget begins again: it counts %s now", budget.Objective(slo)))
	}
	p := budget.Period{At: s.At, Blind: v.Unmeasured}
	if !c.accounted.IsZero() {
		p.Elapsed = s.At.Sub(c.accounted)
	}
	c.accounted = s.At
	if v.Judged {
		p.Judged = c.opts.Service.Sampling.Seconds()
		if slo.Of == quell.OfRequests {
			p.Judged = v.Requests
		}
		p.Missed = v.Causes(slo.Of, s, plan, len(c.mem.Replacing) > 0)
		for cause := range p.Missed {
			p.Missed[cause] *= p.Judged
		}
	}
	ledger.Add(p)
	c.mem.Budget = &ledger
}

// budget returns the error budget for the status; nil if none is kept.
func (c *board) budget() *budget.Report {
	if c.mem.Budget == nil || c.opts.Service.SLO.Target == 0 {
		return nil
	}
	return new(c.mem.Budget.Report(c.opts.Service.SLO))
}

var (
	descTarget = prometheus.NewDesc("quell_slo_target_ratio", "Part of the time, or of the requests, in which the objective must hold.",
		perService, nil)
	descJudged = prometheus.NewDesc("quell_slo_judged_total", "What was compared with the objective: seconds, or requests.",
		[]string{"service", "of"}, nil)
	descMissed = prometheus.NewDesc("quell_slo_missed_total", "What of that missed the objective, by cause.",
		[]string{"service", "of", "cause"}, nil)
	descLeft = prometheus.NewDesc("quell_slo_budget_left_ratio", "Part of the error budget that is left; below 0: more was missed.",
		perService, nil)
	descBurn = prometheus.NewDesc("quell_slo_burn_rate",
		"What was missed in the last time over what may be missed in it; 1 uses the budget up exactly.", []string{"service", "window"}, nil)
	descReserve = prometheus.NewDesc("quell_slo_reserve_ratio", "Part of the capacity that is left free so that the budget suffices.",
		perService, nil)
	descOutOfReach = prometheus.NewDesc("quell_slo_out_of_reach", "1 while even the largest group misses more than the budget allows.",
		perService, nil)
	descBlind = prometheus.NewDesc("quell_slo_unmeasured_periods",
		"Periods in a row with requests whose response times do not have the objective's statistic.", perService, nil)
)

// budget exports the error budget.
func (metrics) budget(s *Status, gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	b := s.Budget
	gauge(descTarget, b.Target)
	counter(descJudged, b.TotalJudged, string(b.Of))
	for _, cause := range budget.Causes {
		counter(descMissed, b.TotalBy[cause], string(b.Of), string(cause))
	}
	gauge(descLeft, b.Left)
	for window, rate := range b.Burn {
		gauge(descBurn, rate, window)
	}
	gauge(descBlind, float64(b.Blind))
	if s.Reserve != nil {
		gauge(descReserve, s.Reserve.Share)
		gauge(descOutOfReach, bit(s.Reserve.OutOfReach != ""))
	}
}
