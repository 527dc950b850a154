package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// write reads what intake and agents wrote down, and writes the page.
func (c *clusterRun) write(w io.Writer) error {
	var in intakeReport
	var f fleetReport
	if err := readReport(c.dir, "intake", &in); err != nil {
		return err
	}
	if err := readReport(c.dir, "agents", &f); err != nil {
		return err
	}
	example, err := json.Marshal(typicalReading(0))
	if err != nil {
		return err
	}
	got := map[sending]time.Duration{}
	for _, a := range in.Got {
		got[a.sending] = a.Delay
	}
	fmt.Fprintf(w, "# %d agents on one cluster\n\nWritten by `go run ./cmd/results cluster` on %s.\n\n", c.agents, machine())
	c.writeSetUp(w, len(example))
	c.writeCalm(w, f.account(got, c.from, c.to), in)
	c.writeLosses(w, &f, got)
	return nil
}

func (c *clusterRun) writeSetUp(w io.Writer, bytes int) {
	fmt.Fprintf(w, `The set-up is that of [scale.md](../scale.md#several-regions-thousands-of-agents), with the credentials
of `+"`quell credentials nats`"+`:

- Three NATS servers with JetStream and routes between them, and a leaf node, each a process.
- %d agents in one process, each with a connection and a credential of its own. The connections are
  made by the code that real agents use. A tenth of the agents name the leaf node, the others all
  three servers. Each sends a reading of %d bytes every %.0f s, at a moment of its own: %.0f readings
  a second.
- The controller's intake in a process of its own: its subscription, the decoding and the checks.
  What follows in a controller is in [scale.md](../scale.md#measured).

Everything runs on this machine, over loopback, without TLS. Delays and times include waiting for a processor
that other work uses, and no network. All agents share one process, so that their handshakes wait for
each other; those of agents on machines of their own do not.

`, c.agents, bytes, clusterPeriod.Seconds(), float64(c.agents)/clusterPeriod.Seconds())
	fmt.Fprintf(w, "The limit of open files is raised to the hard limit: %d for each process.", c.files)
	if c.agents < clusterAgents {
		fmt.Fprintf(w, " That is too few for %d agents.", clusterAgents)
	}
	fmt.Fprintf(w, "\n\nAll agents were connected %.1f s after the first began, the making of their credentials included.\n\n",
		c.connected.Seconds())
}

func (c *clusterRun) writeCalm(w io.Writer, a account, in intakeReport) {
	fmt.Fprintf(w, "## In calm\n\nMeasured for %.0f s, at a load average of %s on %d cores.\n\n", c.to.Sub(c.from).Seconds(), c.load, cores())
	fmt.Fprintf(w, "| process | processor time per second | resident memory |\n|---|---|---|\n")
	for _, row := range []struct{ name, what string }{
		{"n1", "first server"}, {"n2", "second server"}, {"n3", "third server, which has the intake's connections"},
		{"leaf", "leaf node"}, {"intake", "intake, with its record of every reading"},
		{"agents", fmt.Sprintf("all %d agents, with their record of every reading", c.agents)},
	} {
		fmt.Fprintf(w, "| %s | %.0f ms | %d MB |\n", row.what, c.used[row.name]*1e3, c.memory[row.name])
	}
	fmt.Fprintf(w, "\nDelay from publishing to the checked reading: p50 %s, p99 %s, longest %s.\n\n",
		ms(quantile(a.delays, 0.5)), ms(quantile(a.delays, 0.99)), ms(quantile(a.delays, 1)))
	fmt.Fprintf(w, "Of %d readings %d were lost, and %d were not sent because there was no connection.\n", a.sent, a.lost, a.refused)
	fmt.Fprintf(w, "The intake refused %d in the whole run.\n\n", in.Rejected)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1e3) }

// justBefore is how long before the loss of a server a reading may have been published that is lost with it.
const justBefore = time.Second

func (c *clusterRun) writeLosses(w io.Writer, f *fleetReport, got map[sending]time.Duration) {
	fmt.Fprintf(w, `## A server is killed

The servers were ended with SIGKILL, and each loss was watched for at least %.0f s. The first server was
started again before the third was killed. Connections do not move back to it by themselves.

| killed | connections moved | half of them after | all after | readings lost | not sent | last one lost after |
|---|---|---|---|---|---|---|
`, afterLoss.Seconds())
	lost := 0
	for _, l := range c.losses {
		back, a := f.back(l.at, l.until), f.account(got, l.at.Add(-justBefore), l.until)
		last := "none"
		if a.lost > 0 {
			last = fmt.Sprintf("%.2f s", a.lastLost.Sub(l.at).Seconds())
		}
		lost += a.lost
		fmt.Fprintf(w, "| %s | %d | %.2f s | %.2f s | %d of %d | %d | %s |\n", l.what,
			len(back), quantile(back, 0.5).Seconds(), quantile(back, 1).Seconds(), a.lost, a.sent, a.refused, last)
	}
	whole := f.account(got, time.Time{}, c.losses[len(c.losses)-1].until)
	fmt.Fprintf(w, `
In the rest of the run, from the first reading on, %d readings were lost. A lost reading is not sent
again: the agent's next one takes its place, a period later.
`, whole.lost-lost)
}
