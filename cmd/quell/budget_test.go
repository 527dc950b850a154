package main

import (
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/controller"
)

// What is allowed in the whole window is not taken for requests that were seen, and no row begins before the count.
func TestBudgetText(t *testing.T) {
	since := time.Date(2026, 3, 2, 10, 7, 0, 0, time.Local)
	s := controller.Status{Service: "shop", SLO: "p95 <= 80ms", Budget: &budget.Report{
		Target: 0.99, Of: quell.OfRequests, OverS: 7 * 86400, Since: since, Judged: 5000, Missed: 38, Allowed: 7033, Left: 0.99,
		By:   map[budget.Cause]float64{budget.OwnLoad: 38},
		Days: []budget.Span{{At: since.Truncate(time.Hour).Add(-time.Hour), Judged: 5000, Missed: map[budget.Cause]float64{budget.OwnLoad: 38}}},
	}}
	text := budgetText(&s)
	for _, want := range []string{
		"shop: 99% of the requests within 7d: 99% left; 38 requests missed of 5000 requests judged, the window allows 7033 requests at this " +
			"rate; objective",
		"Mon 2 Mar 10:07",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q:\n%s", want, text)
		}
	}
}

// A command that asks one service does not promise all of them.
func TestBudgetsHelp(t *testing.T) {
	if usage := budgetCommand().Flags().Lookup("service").Usage; strings.Contains(usage, "all of them") {
		t.Error(usage)
	}
}

// The line of a released service says so.
func TestStatusLineOfAReleasedService(t *testing.T) {
	var out strings.Builder
	s := controller.Status{Service: "shop", SLO: "p95 <= 80ms", Leading: true, Paused: true, Released: &controller.Released{By: "ann"}}
	const want = "shop: no decision yet; released by ann: as it was"
	if err := writeStatusLine(&out, s, false); err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%q, %v", out.String(), err)
	}
}
