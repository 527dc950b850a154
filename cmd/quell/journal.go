package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/setting"
)

func journalCommand() *cobra.Command {
	var path, dir, service string
	var since time.Duration
	var asJSON, all, brief, snapshots, local bool
	cmd := &cobra.Command{
		Use:   "journal [--config FILE | --dir DIR] [--local] [--since 1h] [--service NAME]",
		Short: "Show what was decided and why; --local: by the policy of this machine's agent",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since < 0 {
				return userErrorf("--since %s: must not be negative; write how far to look back, as in 1h or 1d", setting.FormatDuration(since))
			}
			if brief && (asJSON || snapshots) {
				return userErrorf("--brief is for people: leave out --json and --snapshots")
			}
			w := journalWriter{w: cmd.OutOrStdout(), json: asJSON, all: all, brief: brief}
			defer func() { w.writeBrief() }()
			from := time.Now().Add(-since)
			if local && (dir != "" || service != "" || snapshots) {
				return userErrorf("--local excludes --dir, --service and --snapshots: it reads the entries in the agent's folder")
			}
			if local {
				err := localJournal(cmd, path, from, w.entry)
				if err == nil {
					w.tellEmpty(cmd.ErrOrStderr(), from)
				}
				return err
			}
			if dir != "" && !cmd.Flags().Changed("since") {
				from = time.Time{} // all entries of a stored journal may be older than the default
			}
			return readJournals(cmd, path, dir, service, func(j journal) error {
				if snapshots {
					return j.ReadSnapshots(cmd.Context(), from, func(s quell.Snapshot) error { return w.line(s) })
				}
				err := j.Read(cmd.Context(), from, w.entry)
				if err == nil || errors.Is(err, quell.ErrNoData) {
					w.tellEmpty(cmd.ErrOrStderr(), from)
				}
				return err
			}, func(name string) {
				w.writeBrief()
				w = journalWriter{w: cmd.OutOrStdout(), json: asJSON, all: all, brief: brief}
				if !asJSON && !snapshots {
					fmt.Fprintf(cmd.OutOrStdout(), "service %s\n", name)
				}
			})
		},
	}
	addConfigFlag(cmd, &path)
	cmd.Flags().BoolVar(&local, "local", false, "read the journal of this machine's agent (agent.policy), without controller and bus")
	cmd.Flags().StringVar(&dir, "dir", "", "data folder of a controller that does not run, in place of --config")
	cmd.Flags().StringVar(&service, "service", "", "name of the service; default: the configuration's, or the only one in the folder")
	durationFlag(cmd.Flags(), &since, "since", time.Hour, "how far to look back; with --dir the default is everything")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print whole entries as JSON lines")
	cmd.Flags().BoolVar(&snapshots, "snapshots", false, "print the recorded snapshots instead, as quell plan reads them")
	cmd.Flags().BoolVar(&all, "all", false, "show plans that changed nothing, too")
	cmd.Flags().BoolVar(&brief, "brief", false, "one line for each of the last 20 entries")
	return cmd
}

// journal is a source of entries and snapshots.
type journal interface {
	Read(ctx context.Context, since time.Time, fn func(bus.Entry) error) error
	ReadSnapshots(ctx context.Context, since time.Time, fn func(quell.Snapshot) error) error
}

// readJournals reads the journal in the folder dir or, if dir is empty, those of running services; before the journal of one of several, it
// calls next with the service's name. The error names the services whose journals could not be read.
func readJournals(cmd *cobra.Command, path, dir, service string, read func(journal) error, next func(string)) error {
	if path != "" && dir != "" {
		return userErrorf("--config and --dir exclude each other: --config asks a running controller, --dir reads a folder")
	}
	if dir != "" {
		j, closeAll, err := openStore(dir, service)
		if err != nil {
			return err
		}
		defer closeAll()
		return journalErr(read(j), "")
	}
	if err := findConfig(cmd, &path); err != nil {
		return err
	}
	r, err := services(cmd, path)
	if err != nil {
		return err
	}
	answers := make([]answer, len(r.list))
	for i, file := range r.list {
		if r.several {
			next(file.Service.Name)
		}
		answers[i] = answer{service: file.Service.Name, err: readRunning(file, cmp.Or(service, file.Service.Name), read)}
	}
	return r.failures(answers)
}

// readRunning reads the journal of a service from its running controller.
func readRunning(file *config.File, service string, read func(journal) error) error {
	kept := ""
	if file.Bus.URL == "" && isDir(file.Bus.StoreDir) {
		kept = filepath.Dir(file.Bus.StoreDir)
	}
	conn, err := daemon.Connect(file)
	if err != nil {
		return err
	}
	defer conn.Close()
	return journalErr(read(conn.History(service)), kept)
}

// journalErr is the error of reading a journal, for people; kept is the controller's data folder if it is on this machine. An empty journal
// is no error.
func journalErr(err error, kept string) error {
	switch {
	case errors.Is(err, quell.ErrNoData):
		return nil
	case errors.Is(err, bus.ErrNotConnected) && kept != "":
		return fmt.Errorf("%w. While no controller runs, quell journal --dir %s reads what it wrote", err, kept)
	}
	return err
}

// openStore opens the journal in a folder.
func openStore(dir, service string) (_ *bus.Journal, closeAll func(), err error) {
	if store := filepath.Join(dir, "bus"); isDir(store) {
		dir = store // dir was the controller's data folder
	}
	server, err := bus.OpenStore(dir)
	if err != nil {
		return nil, nil, err
	}
	conn, err := bus.Connect(bus.Options{Server: server, Name: "journal"})
	if err != nil {
		return nil, nil, errors.Join(err, server.Shutdown())
	}
	closeAll = func() {
		conn.Close()
		if err := server.Shutdown(); err != nil {
			fmt.Fprintln(os.Stderr, "quell:", err)
		}
	}
	name, err := onlyService(conn, service)
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	j, err := conn.Journal(name, bus.JournalOptions{})
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	return j, closeAll, nil
}

// onlyService returns the service whose journal a folder has; an error if it has several and none is wanted.
func onlyService(conn *bus.Conn, wanted string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	names, err := conn.Services(ctx)
	switch {
	case err != nil:
		return "", err
	case wanted != "" && slices.Contains(names, wanted):
		return wanted, nil
	case wanted == "" && len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", userErrorf("that folder has no journal that can be read: none was kept there, or its files are damaged")
	}
	return "", userErrorf("name one of the services in that folder with --service: %s", strings.Join(names, ", "))
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// journalWriter prints entries. It leaves out advice that repeats the advice before, unless all is set.
type journalWriter struct {
	w              io.Writer
	json, all      bool
	brief          bool
	last           []string // with brief: the newest lines
	advice         string
	shown, skipped int
}

// tellEmpty says why a journal for people shows nothing.
func (j *journalWriter) tellEmpty(w io.Writer, from time.Time) {
	since := ""
	if !from.IsZero() {
		since = " since " + from.Local().Format(time.DateTime)
	}
	switch {
	case j.json || j.shown > 0:
	case j.skipped > 0:
		fmt.Fprintf(w, "quell: nothing changed%s: --all shows the %d plan(s) that changed nothing\n", since, j.skipped)
	default:
		fmt.Fprintf(w, "quell: nothing was recorded%s\n", since)
	}
}

// line prints a value as one line of JSON.
func (j *journalWriter) line(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(j.w, "%s\n", printableJSON(data))
	return err
}

func (j *journalWriter) entry(e bus.Entry) error {
	if j.json {
		return j.line(e)
	}
	j.shown++
	printable(&e)
	at := e.At.Local().Format(time.DateTime)
	if e.Kind == bus.EventEntry && j.brief {
		j.keep(at + "  " + e.Text)
		return nil
	}
	if e.Kind == bus.EventEntry {
		_, err := fmt.Fprintf(j.w, "%s  %s\n", at, e.Text)
		return err
	}
	what := done(e)
	if e.Plan.Host != "" && what == "" {
		what = reported(e.Plan)
	} else if !j.all && (what == "" || what == j.advice) {
		j.shown, j.skipped = j.shown-1, j.skipped+1
		return nil
	}
	j.advice = what
	what = cmp.Or(what, "nothing changed")
	if e.Applied {
		what = e.Plan.Policy + "  " + what
	}
	if j.brief {
		j.keep(at + "  " + what)
		return nil
	}
	if _, err := fmt.Fprintf(j.w, "%s  %s\n", at, what); err != nil {
		return err
	}
	for _, r := range quell.ShownReasons(e.Plan.Reasons, e.At) {
		who := ""
		if r.Instance != "" {
			who = " " + r.Instance
		}
		if _, err := fmt.Fprintf(j.w, "    %s%s: %s\n", r.Code, who, r.Text); err != nil {
			return err
		}
	}
	return nil
}

// mostBrief is how many entries --brief shows.
const mostBrief = 20

// keep stores a line for the end, and drops the oldest of too many.
func (j *journalWriter) keep(line string) {
	if j.last = append(j.last, cutText(line, statusWidth)); len(j.last) > mostBrief {
		j.last = j.last[1:]
	}
}

// writeBrief prints the lines that were kept.
func (j *journalWriter) writeBrief() {
	if earlier := j.shown - len(j.last); j.brief && earlier > 0 {
		fmt.Fprintf(j.w, "%d earlier entries: leave out --brief\n", earlier)
	}
	for _, line := range j.last {
		fmt.Fprintln(j.w, line)
	}
}

// reported describes a plan of an agent, which reports or limits control groups. An agent writes a plan into its journal when its reasons
// differ from those of the plan before.
func reported(p *quell.Plan) string {
	switch {
	case len(p.Limits) == 1:
		return "limits " + p.Limits[0].Instance
	case len(p.Limits) > 1:
		return fmt.Sprintf("sets %d limits", len(p.Limits))
	case len(p.Reasons) == 0:
		return "nothing to report any more"
	}
	return "reports"
}

// groupText describes a change of the group.
func groupText(g *quell.GroupChange) string {
	var parts []string
	if g.Add > 0 {
		parts = append(parts, fmt.Sprintf("add %d", g.Add))
	}
	if len(g.Remove) > 0 {
		parts = append(parts, "remove "+strings.Join(g.Remove, ", "))
	}
	return strings.Join(parts, "; ")
}

// done describes the outcome of a plan; empty if the plan changed nothing.
func done(e bus.Entry) string {
	changes := strings.Join(e.Changes, "; ")
	switch {
	case e.Applied:
		return changes
	case len(e.Would) > 0:
		return e.Why + ": would " + strings.Join(e.Would, "; ")
	case e.Why == "" && e.Mode == quell.Advise: // an old version wrote the entry, which did not record more
		return "advise mode: would " + planned(e.Plan)
	case e.Why == "":
		return "not applied: " + planned(e.Plan)
	case !strings.HasPrefix(e.Why, "failed: "):
		return "" // nothing was tried, and nothing would have changed
	case changes == "":
		return e.Why
	}
	return changes + "; the rest " + e.Why
}

// planned describes what a plan asked for.
func planned(p *quell.Plan) string {
	var parts []string
	if !p.Group.Empty() {
		parts = append(parts, groupText(p.Group))
	}
	if len(p.Weights) > 0 {
		weights := []string{"set weights"}
		for _, id := range slices.Sorted(maps.Keys(p.Weights)) {
			weights = append(weights, fmt.Sprintf("%s=%.3f", id, p.Weights[id]))
		}
		parts = append(parts, strings.Join(weights, " "))
	}
	if len(parts) == 0 {
		return "change nothing"
	}
	return strings.Join(parts, "; ")
}
