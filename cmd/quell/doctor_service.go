package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/diagnose"
)

// examination is what was found about a service.
type examination struct {
	facts    diagnose.Facts
	findings []diagnose.Finding
	journal  []byte   // lines of the last hour
	missing  []string // what could not be asked
}

// doctorWait bounds all questions together.
const doctorWait = time.Minute

// diagnoseService says what is wrong with the services of a configuration, or writes that into an archive.
func diagnoseService(cmd *cobra.Command, path, archive string, asJSON bool) error {
	if err := findConfig(cmd, &path); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), doctorWait)
	defer cancel()
	c, err := examine(ctx, path, cmd.Flags().Lookup("service").Value.String())
	if err != nil {
		return err
	}
	w, findings := cmd.OutOrStdout(), c.findings()
	if archive != "" {
		err = c.archive(w, archive)
	} else {
		err = writeFindings(w, findings, asJSON)
	}
	if err == nil && len(findings) > 0 {
		return statusError(exitFailed)
	}
	return err
}

func (x *examination) ask(ctx context.Context, file *config.File) {
	f := &x.facts
	f.Service, f.Notes = file.Service, file.Notes()
	f.Balancer = file.Balancer.Kind
	_, f.Listed = file.Scaler.Listed()
	if b, ok := file.Balancer.Settings.(interface{ LogAt() string }); ok {
		f.Log = b.LogAt()
	}
	for _, a := range daemon.Online(ctx, file) {
		f.Answers = append(f.Answers, diagnose.Answer{Asked: a.Asked, Got: strings.ReplaceAll(a.Got, "\n", "; "), OK: a.OK})
	}
	conn, err := daemon.Connect(file)
	if err != nil {
		x.missing = append(x.missing, "controller: "+err.Error())
		return
	}
	defer conn.Close()
	if s, err := controller.Ask(ctx, conn, file.Service.Name); err != nil {
		x.missing = append(x.missing, "status of the controller: "+err.Error())
	} else {
		f.Status = &s
	}
	if err := x.read(ctx, conn.History(file.Service.Name)); err != nil && !errors.Is(err, quell.ErrNoData) {
		x.missing = append(x.missing, "journal of the controller: "+err.Error())
	}
}

// mostJournal bounds the journal in an archive. Of a longer one the newest entries are kept.
const mostJournal = 8 << 20

// read reads the last hour of the journal.
func (x *examination) read(ctx context.Context, j journal) error {
	since := x.facts.Now.Add(-time.Hour)
	asked, left := map[int64]bool{}, 0
	err := j.Read(ctx, since, func(e bus.Entry) error {
		if e.Kind == bus.EventEntry || e.Plan != nil && e.Applied && (!e.Plan.Group.Empty() || len(e.Plan.Replace) > 0) {
			asked[e.At.Unix()] = true
		}
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		x.journal = append(append(x.journal, line...), '\n')
		for ; len(x.journal) > mostJournal; left++ {
			x.journal = x.journal[bytes.IndexByte(x.journal, '\n')+1:]
		}
		return nil
	})
	if left > 0 {
		x.missing = append(x.missing, fmt.Sprintf("journal of the controller: the oldest %d entries of the last hour, which are more than %d MiB",
			left, mostJournal>>20))
	}
	if err != nil {
		return err
	}
	return j.ReadSnapshots(ctx, since, func(s quell.Snapshot) error {
		r := diagnose.Record{At: s.At}
		for second := range int64(2) {
			r.Asked = r.Asked || asked[s.At.Unix()+second]
		}
		for i := range s.Instances {
			in := &s.Instances[i]
			r.IDs = append(r.IDs, in.ID)
			if in.Observation == nil {
				continue
			}
			for _, use := range in.Observation.Utilization {
				if use > r.Largest {
					r.Largest, r.Busiest = use, in.ID
				}
			}
		}
		x.facts.Records = append(x.facts.Records, r)
		return nil
	})
}

// writeFindings says what is wrong, and what mends it.
func writeFindings(w io.Writer, findings []diagnose.Finding, asJSON bool) error {
	list := append([]diagnose.Finding{}, findings...)
	printable(&list)
	if asJSON {
		return json.NewEncoder(w).Encode(list)
	}
	_, err := io.WriteString(w, findingsText(list))
	return err
}

func findingsText(list []diagnose.Finding) string {
	if len(list) == 0 {
		return "Nothing is wrong that can be seen from here.\n"
	}
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "%s\n", strings.TrimSuffix(f.What, ":"))
		if f.Why != "" {
			fmt.Fprintf(&b, "  why:  %s\n", f.Why)
		}
		fmt.Fprintf(&b, "  mend: %s\n", f.Mend)
	}
	return b.String()
}
