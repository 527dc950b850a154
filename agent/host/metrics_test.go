package host

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/quellhq/quell"
)

// What a plan says of a group is exported, if it says it.
func TestMetricsOfGroups(t *testing.T) {
	slowdown, related := 2.5, 0.87
	home := &Home{}
	home.shown.Store(&Status{Plan: &quell.Plan{Tenants: map[string]quell.Tenant{
		"db": {Slowdown: &slowdown}, "web": {Slowdown: &slowdown, Correlation: &related},
	}}})
	want := `
# HELP quell_agent_group_correlation ` +
		`Correlation of the slowdowns that a control group reported with how long its tasks waited for processors.
# TYPE quell_agent_group_correlation gauge
quell_agent_group_correlation{group="web"} 0.87
# HELP quell_agent_group_slowdown Time per unit of work of a control group, over that of the group alone.
# TYPE quell_agent_group_slowdown gauge
quell_agent_group_slowdown{group="db"} 2.5
quell_agent_group_slowdown{group="web"} 2.5
`
	if err := testutil.CollectAndCompare(collector{home}, strings.NewReader(want), "quell_agent_group_slowdown",
		"quell_agent_group_correlation"); err != nil {
		t.Error(err)
	}
}
