package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bundle"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/diagnose"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/namedfile"
)

// examination is what was found about a service.
type examination struct {
	facts    diagnose.Facts
	findings []diagnose.Finding
	source   []byte   // the configuration
	journal  []byte   // lines of the last hour
	missing  []string // what could not be asked
}

// doctorWait bounds all questions together.
const doctorWait = time.Minute

// diagnoseService says what is wrong with a service, or writes that into an archive.
func diagnoseService(cmd *cobra.Command, path, archive string, asJSON bool) error {
	if err := findConfig(cmd, &path); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), doctorWait)
	defer cancel()
	x, err := examine(ctx, path)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if archive != "" {
		err = x.archive(w, archive)
	} else {
		err = x.write(w, asJSON)
	}
	if err == nil && len(x.findings) > 0 {
		return statusError(exitFailed)
	}
	return err
}

// mostConfig bounds a configuration file.
const mostConfig = 16 << 20

// examine asks every part. A part that does not answer is a finding, never an error.
func examine(ctx context.Context, path string) (*examination, error) {
	x := &examination{facts: diagnose.Facts{Config: path, Now: time.Now()}}
	var err error
	if x.source, err = namedfile.Read(path, mostConfig); err != nil {
		return nil, userErrorf("%w", err)
	}
	file, err := daemon.Drivers().Check(path)
	if err := errors.Join(err, checkModels(file)); err != nil {
		x.facts.Mistakes = strings.ReplaceAll(err.Error(), "\n", "; ")
		x.missing = append(x.missing, "controller, balancer and instances were not asked: the configuration has mistakes")
	} else {
		x.ask(ctx, file)
	}
	x.findings = diagnose.Findings(&x.facts)
	return x, nil
}

func (x *examination) ask(ctx context.Context, file *config.File) {
	f := &x.facts
	f.Service, f.Notes = file.Service, file.Notes()
	f.Balancer = file.Balancer.Kind
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

// mostJournal bounds the journal in an archive.
const mostJournal = 8 << 20

// read reads the last hour of the journal.
func (x *examination) read(ctx context.Context, j journal) error {
	since := x.facts.Now.Add(-time.Hour)
	asked := map[int64]bool{}
	err := j.Read(ctx, since, func(e bus.Entry) error {
		if e.Kind == bus.EventEntry || e.Plan != nil && e.Applied && (!e.Plan.Group.Empty() || len(e.Plan.Replace) > 0) {
			asked[e.At.Unix()] = true
		}
		line, err := json.Marshal(e)
		if err == nil && len(x.journal)+len(line) < mostJournal {
			x.journal = append(append(x.journal, line...), '\n')
		}
		return err
	})
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

// write says what is wrong, and what mends it.
func (x *examination) write(w io.Writer, asJSON bool) error {
	list := append([]diagnose.Finding{}, x.findings...)
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

// archive writes everything that was found, without secrets. It is made in memory: nothing is left of it if the disk is full.
func (x *examination) archive(w io.Writer, path string) error {
	var s bundle.Scrubber
	files := []bundle.File{{Name: "quell.yaml", Data: s.Config(x.source)}}
	hideFiles(&s, filepath.Dir(x.facts.Config))
	status, err := json.MarshalIndent(x.facts.Status, "", " ")
	if err != nil {
		return err
	}
	var answers bytes.Buffer
	for _, a := range x.facts.Answers {
		fmt.Fprintf(&answers, "%v  %s: %s\n", a.OK, a.Asked, a.Got)
	}
	for _, f := range []bundle.File{
		{Name: "version.txt", Data: []byte(buildVersion() + "\n")},
		{Name: "findings.txt", Data: []byte(findingsText(x.findings))},
		{Name: "answers.txt", Data: answers.Bytes()},
		{Name: "status.json", Data: status},
		{Name: "journal.jsonl", Data: x.journal},
		{Name: "missing.txt", Data: []byte(strings.Join(append(x.missing, ""), "\n"))},
	} {
		files = append(files, bundle.File{Name: f.Name, Data: s.Text(f.Data)})
	}
	data, err := bundle.Archive("quell-bundle", x.facts.Now, files)
	if err != nil {
		return err
	}
	if path == "-" {
		_, err := w.Write(data)
		return err
	}
	if err := atomicfile.WriteNamed(path, data, 0o600); err != nil {
		return fmt.Errorf("%w. If the disk is full: quell doctor --bundle - | ssh OTHER 'cat > bundle.tar.gz'", err)
	}
	_, err = fmt.Fprintf(w, "%s: %d finding(s), %d files without secrets. Look through them before you send them: tar -xzf %s\n", path,
		len(x.findings), len(files), path)
	return err
}

// mostSecret bounds the files with secrets that a configuration names.
const mostSecret = 64 << 10

// hideFiles removes also what stands in files that the configuration names: tokens, credentials, keys.
func hideFiles(s *bundle.Scrubber, dir string) {
	for _, name := range s.Hidden() {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(cmp.Or(dir, "."), name)
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > mostSecret {
			continue
		}
		if data, err := namedfile.Read(path, mostSecret); err == nil {
			s.Hide(string(data))
		}
	}
}
