package policy

import (
	"time"

	"github.com/quellhq/quell"
)

// patientStart is the multiple of group.startup after which an instance that is still starting counts as failed: a machine may take
// group.startup until it runs, and again until its service passes the health checks.
const patientStart = 2

// judgeStart notes whether an instance has been starting for longer than group.startup. After twice that it counts as failed, so that it is
// given up and another one can take its place. known says that it was in an earlier snapshot: then a start that begins now, for example
// after a person held the instance, may take its time, whatever the instance's age. An instance that is to replace another one is judged by
// the replacement.
func (m *Member) judgeStart(in *Input, known bool) {
	if m.State != quell.Starting || m.Held != nil || m.Replaces != "" {
		m.mem.StartingSince = nil
		return
	}
	at, startup := in.Snapshot.At, in.Service.Group.Startup
	if m.mem.StartingSince == nil {
		since := at
		if !known {
			since = at.Add(-m.Age())
		}
		m.mem.StartingSince = &since
	}
	took := at.Sub(*m.mem.StartingSince)
	if startup <= 0 || took <= startup {
		return
	}
	m.late = took
	if took > patientStart*startup {
		failed := *m.Instance
		failed.State = quell.Failed
		m.Instance = &failed
	}
}

// noteLate reports the instances that should have started by now.
func noteLate(in *Input, g *Group, plan *quell.Plan) {
	gone := removed(plan)
	for i := range g.Members {
		m := &g.Members[i]
		if m.late == 0 {
			continue
		}
		what := "it does not count as coming"
		if gone[m.ID] {
			what = "giving it up"
		}
		AddReason(plan, "start_overdue", m.ID, "%s has been starting for %s, and group.startup is %s: %s", m.ID, m.late.Round(time.Second),
			in.Service.Group.Startup, what)
	}
}
