package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
)

var update = flag.Bool("update", false, "write the generated parts of the documentation")

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestConfigurationReference checks that the tables of keys in docs/configuration.md are those that the program
// prints.
func TestConfigurationReference(t *testing.T) {
	const name = "docs/configuration.md"
	text := readDoc(t, name)
	want := text
	var scenarios bytes.Buffer
	if err := scenario.Reference(&scenarios); err != nil {
		t.Fatal(err)
	}
	printed, err := exec.Command("quell", "config", "reference").Output()
	if err != nil {
		t.Fatal(err)
	}
	for mark, table := range map[string]string{"config": string(printed), "scenario": scenarios.String()} {
		begin, end := "<!-- "+mark+" reference: begin -->\n", "<!-- "+mark+" reference: end -->"
		before, rest, ok := strings.Cut(want, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s lacks the marks of the %s reference", name, mark)
		}
		want = before + begin + table + end + after
	}
	if want == text {
		return
	}
	if *update {
		if err := os.WriteFile(filepath.Join(repository(t), name), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s is out of date: go test ./cmd/quell -run Reference -update", name)
}

// TestBalancersReference checks that docs/balancers/README.md lists the drivers that the program has, with their pages.
func TestBalancersReference(t *testing.T) {
	const name = "docs/balancers/README.md"
	const fails = "when-something-fails"
	want := "# Balancers\n\nThe kinds of balancers that a configuration can name (`balancer.kind`), and where to read about\n" +
		"each. This page is written by `go test ./cmd/quell -run Reference -update`. For one of your own:\n" +
		"[write a balancer driver](../write-a-balancer-driver.md).\n\n" +
		"| kind | what it is | when something fails |\n|---|---|---|\n"
	inGuide := map[string]string{"builtin": "the-built-in-balancer", "command": "a-balancer-or-a-scaler-of-your-own"}
	guide := readDoc(t, "docs/guide.md")
	for _, k := range daemon.Drivers().Balancers {
		page, faults := k.Name+".md", k.Name+".md#"+fails
		text, err := os.ReadFile(filepath.Join(repository(t), "docs/balancers", page))
		switch {
		case err != nil:
			page, faults = "../guide.md#"+inGuide[k.Name], "../faults.md"
			if !headings(guide)[inGuide[k.Name]] {
				t.Errorf("docs/guide.md has no heading for the balancer %s: %q", k.Name, inGuide[k.Name])
			}
		case !headings(string(text))[fails]:
			t.Errorf("docs/balancers/%s needs a section with the heading When something fails", page)
		}
		want += fmt.Sprintf("| [`%s`](%s) | %s | [faults](%s) |\n", k.Name, page, k.About, faults)
	}
	if *update {
		if err := os.WriteFile(filepath.Join(repository(t), name), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if readDoc(t, name) != want {
		t.Errorf("%s is out of date: go test ./cmd/quell -run Reference -update", name)
	}
}

// docFile returns a block of docs/files.md that shows a whole file.
func docFile(t *testing.T, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(readDoc(t, "docs/files.md"), "<!-- file: "+name+" -->\n```json\n")
	block, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatalf("docs/files.md has no block for %s", name)
	}
	return block
}

// TestDocumentedPlan passes the documented snapshot to `quell plan` and expects the documented plan.
func TestDocumentedPlan(t *testing.T) {
	var line bytes.Buffer
	if err := json.Compact(&line, []byte(docFile(t, "snapshot.json"))); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join(repository(t), "examples", "golden")
	cmd := exec.Command("quell", "plan", "--config", filepath.Join(golden, "prima.yaml"), "--models", filepath.Join(golden, "models.json"))
	cmd.Stdin = &line
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(docFile(t, "plan.json")), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("docs/files.md shows another plan than this:\n%s", out)
	}
}

// TestDocumentedModels fits the documented training rows and expects the documented models.
func TestDocumentedModels(t *testing.T) {
	rows, err := model.ReadTraining(strings.NewReader(docFile(t, "training.jsonl")), "line ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := model.Decode([]byte(docFile(t, "models.json")), "line ")
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := model.Fit(rows, model.FitOptions{Service: "files", InstanceType: "small", Metric: quell.Mean, At: want.Trained.At})
	if err != nil {
		t.Fatal(err)
	}
	if g, w := tables(got), tables(want); g != w {
		t.Errorf("the documented rows give other models:\n got %s\nwant %s", g, w)
	}
}

// tables is the part of models that the documentation shows: it leaves out errors and the sizes of samples.
func tables(m *model.Models) string {
	for _, rows := range m.Prima().ResponseTime {
		for i := range rows {
			rows[i].LatencyMS.N = 0
		}
	}
	m.Trained.Errors = nil
	for resource, use := range m.Trained.PerRequest {
		m.Trained.PerRequest[resource] = float64(int(use*1e6+0.5)) / 1e6
	}
	data, err := json.Marshal([]any{m.Trained, m.Prima()})
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestDocumentedMembers decodes the documented list of a command scaler with the type that reads it.
func TestDocumentedMembers(t *testing.T) {
	var members []quell.Member
	if err := strictjson.Decode([]byte(docFile(t, "members.json")), &members); err != nil {
		t.Fatal(err)
	}
	if len(members) != 2 || members[0].State != quell.Ready {
		t.Errorf("read %+v", members)
	}
}

// TestDocumentedFields checks that docs/files.md names every field of snapshots, plans, readings, journal, status and members in the
// section about it, and that its tables name no others.
func TestDocumentedFields(t *testing.T) {
	text := readDoc(t, "docs/files.md")
	for heading, types := range map[string][]reflect.Type{
		"Snapshots":                  typesOf(quell.Snapshot{}, quell.Instance{}, quell.Observation{}),
		"Plans":                      typesOf(quell.Plan{}),
		"Readings":                   typesOf(quell.Reading{}),
		"Journal":                    typesOf(bus.Entry{}),
		"Status":                     typesOf(controller.Status{}, controller.InstanceStatus{}, host.Status{}),
		"A scaler of kind `command`": typesOf(quell.Member{}),
	} {
		_, section, ok := strings.Cut(text, "\n## "+heading+"\n")
		if !ok {
			t.Errorf("docs/files.md has no section %s", heading)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		fields := map[string]bool{}
		for _, typ := range types {
			for i := range typ.NumField() {
				name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
				fields[name] = true
				if !strings.Contains(section, "`"+name+"`") {
					t.Errorf("%s: %s.%s is not documented", heading, typ, name)
				}
			}
		}
		for _, row := range fieldRow.FindAllStringSubmatch(section, -1) {
			for _, name := range strings.Split(row[1], ", ") {
				if !fields[strings.Trim(name, "`")] {
					t.Errorf("%s: there is no field %s", heading, name)
				}
			}
		}
	}
}

// fieldRow is a table's row that begins with names of fields.
var fieldRow = regexp.MustCompile("(?m)^\\| (`[a-z_]+`(?:, `[a-z_]+`)*) \\|")

func typesOf(values ...any) (types []reflect.Type) {
	for _, v := range values {
		types = append(types, reflect.TypeOf(v))
	}
	return types
}

// TestSetBackends runs the example program of a balancer on the documented backends.
func TestSetBackends(t *testing.T) {
	need.Program(t, "jq")
	for name, c := range map[string]struct{ input, want string }{
		"documented": {docFile(t,
			"backends.json"), "upstream shop {\n  least_conn;\n  server 10.0.0.21:80 weight=750;\n  server 10.0.0.22:80 weight=250;\n}\n"},
		"none": {`{"service":"shop","backends":[]}`, "upstream shop {\n  least_conn;\n  server 127.0.0.1:1 down;\n}\n"},
		"tiny share": {`{"service":"shop","backends":[{"id":"a","address":"10.0.0.1:80","weight":0.0001}]}`,
			"upstream shop {\n  least_conn;\n  server 10.0.0.1:80 weight=1;\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, reloaded := filepath.Join(dir, "upstream.conf"), filepath.Join(dir, "reloaded")
			cmd := exec.Command(filepath.Join(repository(t), "examples", "command", "set-backends"))
			cmd.Env = append(os.Environ(), "UPSTREAM_FILE="+file, "RELOAD=touch "+reloaded)
			cmd.Stdin = strings.NewReader(c.input)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got, err := os.ReadFile(file)
			if err != nil || string(got) != c.want {
				t.Errorf("%v, wrote\n%swant\n%s", err, got, c.want)
			}
			if _, err := os.Stat(reloaded); err != nil {
				t.Errorf("not reloaded: %v", err)
			}
		})
	}
}

// TestSetBackendsRefusesWhatItCannotRead checks that invalid input leaves the file in force unchanged.
func TestSetBackendsRefusesWhatItCannotRead(t *testing.T) {
	need.Program(t, "jq")
	file := filepath.Join(t.TempDir(), "upstream.conf")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(repository(t), "examples", "command", "set-backends"))
	cmd.Env = append(os.Environ(), "UPSTREAM_FILE="+file, "RELOAD=false")
	cmd.Stdin = strings.NewReader("{")
	if err := cmd.Run(); err == nil {
		t.Error("it ended with status 0")
	}
	left, err := filepath.Glob(file + "*")
	if got, _ := os.ReadFile(file); err != nil || string(got) != "old" || len(left) != 1 {
		t.Errorf("the file now holds %q; beside it %q", got, left)
	}
}

// TestArchitectureMap checks every file and function in ARCHITECTURE.md's tables: names that end in .go are files, functions belong to
// the last file before them.
func TestArchitectureMap(t *testing.T) {
	for heading, least := range map[string]int{"## From a reading to a weight": 30, "## From the paper to the code": 50} {
		_, table, ok := strings.Cut(readDoc(t, "ARCHITECTURE.md"), heading)
		table, _, ok2 := strings.Cut(table, "\n## ")
		if !ok || !ok2 {
			t.Fatalf("ARCHITECTURE.md has no %q", heading)
		}
		if checked := lookUp(t, table); checked < least {
			t.Errorf("%s: %d names checked only: has the table changed its form?", heading, checked)
		}
	}
}

// lookUp checks that the names in a table's code spans exist in the files, and counts them.
func lookUp(t *testing.T, table string) (checked int) {
	t.Helper()
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		var declared map[string]bool
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			name := m[1]
			switch {
			case strings.HasSuffix(name, ".go"):
				declared = declarations(t, name)
			case !declared[name]:
				t.Errorf("%s\n%s is not declared in the file named before it", line, name)
			}
			checked++
		}
	}
	return checked
}

// declarations lists a file's functions; methods as Type.Name.
func declarations(t *testing.T, name string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository(t), name), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	names := map[string]bool{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if f.Recv == nil {
			names[f.Name.Name] = true
			continue
		}
		receiver := f.Recv.List[0].Type
		if pointer, ok := receiver.(*ast.StarExpr); ok {
			receiver = pointer.X
		}
		if id, ok := receiver.(*ast.Ident); ok {
			names[id.Name+"."+f.Name.Name] = true
		}
	}
	return names
}

// documents are the pages of the project.
func documents(t *testing.T) []string {
	t.Helper()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/policies/*.md", "docs/balancers/*.md"} {
		found, err := filepath.Glob(filepath.Join(repository(t), pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	if len(pages) < 12 {
		t.Fatalf("%d pages only: %q", len(pages), pages)
	}
	return pages
}

// TestLinks follows every link inside the documentation, including headings.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range documents(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, fragment, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			content, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				err = nil
			}
			if err != nil {
				t.Errorf("%s: link to %s: %v", page, m[1], err)
			} else if fragment != "" && !headings(string(content))[fragment] {
				t.Errorf("%s: link to %s: no such heading", page, m[1])
			}
		}
	}
}

// headings are the anchors of a page.
func headings(page string) map[string]bool {
	anchors := map[string]bool{}
	for line := range strings.Lines(page) {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			anchor := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			anchors[strings.ReplaceAll(anchor, " ", "-")] = true
		}
	}
	return anchors
}

// TestDocumentedMetrics checks that the guide names every metric of the controller and the balancer.
func TestDocumentedMetrics(t *testing.T) {
	guide := readDoc(t, "docs/guide.md")
	name := regexp.MustCompile(`"(quell_[a-z_]*[a-z])"`)
	found := 0
	for _, source := range []string{"controller/metrics.go", "balancer/builtin/metrics.go"} {
		for _, m := range name.FindAllStringSubmatch(readDoc(t, source), -1) {
			found++
			if !strings.Contains(guide, "`"+m[1]+"`") {
				t.Errorf("docs/guide.md does not mention %s of %s", m[1], source)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d metrics found only: are they declared in another way now?", found)
	}
}

// TestDependencies compares docs/dependencies.md with go.mod.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(repository(t), "go.mod")).Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path, Version string
			Indirect      bool
		}
		Tool []struct{ Path string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	page := readDoc(t, "docs/dependencies.md")
	listed := strings.Count(page, "\n| ") - 1
	wanted := 0
	for _, r := range mod.Require {
		tool := false
		for _, x := range mod.Tool {
			tool = tool || strings.HasPrefix(x.Path, r.Path+"/")
		}
		if r.Indirect && !tool {
			continue
		}
		wanted++
		if !strings.Contains(page, "| "+r.Path+" | "+r.Version+" |") {
			t.Errorf("docs/dependencies.md lacks %s %s", r.Path, r.Version)
		}
	}
	if listed != wanted {
		t.Errorf("docs/dependencies.md lists %d modules, go.mod %d", listed, wanted)
	}
}

// TestExamples checks every configuration and scenario in examples.
func TestExamples(t *testing.T) {
	examples := filepath.Join(repository(t), "examples")
	for pattern, load := range map[string]func(string) error{
		"*.yaml":             func(path string) error { _, err := daemon.Drivers().Load(path); return err },
		"golden/*.yaml":      func(path string) error { _, err := daemon.Drivers().Load(path); return err },
		"haproxy/*.yaml":     func(path string) error { _, err := daemon.Drivers().Load(path); return err },
		"lvs/*.yaml":         func(path string) error { _, err := daemon.Drivers().Load(path); return err },
		"envoy/quell.yaml":   func(path string) error { _, err := daemon.Drivers().Load(path); return err },
		"reports/quell.yaml": func(path string) error { _, err := daemon.Drivers().Load(path); return err },
		"nginx/*.yaml":       func(path string) error { _, err := daemon.Drivers().Load(path); return err },
		"services/quell.yaml": func(path string) error {
			fleet, err := daemon.Drivers().LoadFleet(path)
			if err == nil {
				err = fleet.Err()
			}
			return err
		},
		"middleware/*.yaml": func(path string) error { _, err := daemon.Drivers().Load(path); return err },
		"demo/*.yaml":       func(path string) error { _, err := scenario.Load(path); return err },
		"scenarios/*.yaml":  func(path string) error { _, err := scenario.Load(path); return err },
	} {
		files, err := filepath.Glob(filepath.Join(examples, pattern))
		if err != nil || len(files) == 0 {
			t.Errorf("no examples match %s: %v", pattern, err)
		}
		for _, file := range files {
			if err := load(file); err != nil {
				t.Error(err)
			}
		}
	}
}
