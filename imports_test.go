package quell_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/quellhq/quell"

// mayImport is the table behind "Imports point one way" in ARCHITECTURE.md: for each package of this module, the
// packages of this module that it may import. "." is the root package. A row with a pattern is for matching packages that
// have no row of their own, and a pattern in a row stands for all that match.
var mayImport = map[string][]string{
	".":       {"internal/histogram"},
	"setting": {"."},
	"budget":  {"."},

	// Decide: what is learned, what decides, where requests go.
	"stats":           {},
	"model":           {".", "setting", "stats", "internal/strictjson"},
	"model/modelfile": {".", "model", "internal/atomicfile", "internal/namedfile"},
	"credit":          {".", "setting", "stats", "internal/strictjson"},
	"bundle":          {},
	"report":          {".", "switchback"},
	"redline":         {".", "model"},
	"switchback":      {"."},
	"setup":           {},

	"agentless":      {"."},
	"agentless/look": {".", "agentless", "probe"},
	"policy":         {".", "setting", "credit", "model", "policy/guard", "policy/ownwork", "stats"},

	// A policy imports the core and small packages that several policies share, but no other policy. The core imports no policy. Only the
	// table imports them all.
	"policy/divide":     {},
	"policy/bands":      {".", "policy"},
	"policy/guard":      {"."},
	"policy/ownwork":    {"."},
	"policy/*":          {".", "credit", "model", "policy", "policy/bands", "policy/divide", "setting", "stats"},
	"policy/table":      {"policy", "policy/*"},
	"policy/prima":      {".", "budget", "credit", "model", "policy", "policy/divide", "setting"},
	"policy/policytest": {".", "config/yaml", "model", "model/modelfile", "policy", "policy/guard", "setting", "stats", "internal/strictjson"},
	"life":              {"."},
	"share":             {"."},
	"route":             {"."},

	// Sense and carry.
	"sensor":           {".", "internal/cgroup", "internal/terminal"},
	"sensor/served":    {".", "setting"},
	"sensor/credits":   {".", "setting", "sensor"},
	"sensor/credits/*": {".", "setting", "credit", "sensor", "sensor/credits", "internal/tick"},
	"probe":            {".", "internal/connlimit", "internal/outage", "internal/tick"},
	"probe/local":      {".", "probe", "sensor", "setting", "internal/tick"},
	"progress":         {"internal/atomicfile", "internal/cgroup", "internal/connlimit", "internal/outage"},
	"agent":            {".", "sensor", "probe", "internal/outage", "internal/tick"},
	"agent/training":   {".", "bus", "sensor"},
	"interfere":        {".", "internal/atomicfile", "internal/lifeline", "internal/tick"},
	"agent/orca":       {".", "internal/certfile", "internal/grpclimit"},
	"agent/profile":    {".", "credit", "progress", "sensor", "internal/program"},
	"agent/host": {".", "bus", "policy", "policy/table", "sensor", "internal/atomicfile", "internal/connlimit", "internal/lockfile",
		"internal/outage", "internal/tick"},
	"bus": {".", "bus/auth", "bus/pack", "bus/subjects", "internal/certfile", "internal/connlimit", "internal/lockfile", "internal/namedfile",
		"internal/outage", "internal/strictjson", "internal/terminal"},
	"bus/auth":     {".", "bus/subjects", "internal/atomicfile", "internal/lockfile", "internal/terminal"},
	"bus/pack":     {},
	"bus/subjects": {"."},

	// Act.
	"balancer": {".", "setting", "internal/outage", "internal/atomicfile", "internal/hostaddr", "internal/strictjson"},
	"balancer/*": {".", "balancer", "balancer/health", "balancer/managed", "balancer/measure", "setting", "internal/atomicfile",
		"internal/outage"},
	"balancer/command":      {".", "balancer", "setting", "internal/outage", "internal/program", "internal/atomicfile", "internal/strictjson"},
	"balancer/balancertest": {".", "balancer", "setting"},
	"balancer/managed":      {"."},
	"balancer/measure":      {".", "balancer", "internal/tick"},
	"balancer/health":       {"setting", "internal/webcheck"},
	"balancer/builtin": {".", "balancer", "balancer/health", "balancer/measure", "setting", "route", "internal/certfile", "internal/connlimit",
		"internal/outage", "internal/tick", "internal/atomicfile", "internal/webcheck", "internal/strictjson"},
	"balancer/haproxy": {".", "balancer", "balancer/managed", "balancer/measure", "setting", "internal/logsocket", "internal/outage",
		"internal/tick", "internal/atomicfile", "internal/terminal"},
	"balancer/lvs":      {".", "balancer", "balancer/managed", "setting", "internal/outage", "internal/atomicfile"},
	"balancer/envoylog": {".", "balancer", "balancer/measure", "setting", "internal/certfile", "internal/grpclimit"},
	"balancer/envoy": {".", "balancer", "balancer/envoylog", "balancer/health", "balancer/managed", "setting",
		"internal/outage", "internal/tick"},
	"balancer/reports": {".", "balancer", "balancer/envoylog", "balancer/health", "balancer/managed", "setting"},
	"balancer/nginx": {".", "balancer", "balancer/health", "balancer/managed", "balancer/nginx/accesslog", "balancer/nginx/include",
		"balancer/nginx/master", "balancer/nginx/peers", "balancer/nginx/record", "setting", "internal/lockfile", "internal/outage"},
	"balancer/nginx/accesslog":       {".", "balancer", "balancer/measure", "internal/logsocket"},
	"balancer/nginx/include":         {"setting", "internal/atomicfile", "internal/lockfile"},
	"balancer/nginx/master":          {"internal/program", "internal/tick"},
	"balancer/nginx/peers":           {"balancer", "balancer/nginx/include"},
	"balancer/nginx/record":          {".", "balancer", "balancer/managed", "balancer/nginx/include"},
	"keda":                           {"internal/certfile", "internal/grpclimit"},
	"scaler":                         {".", "setting"},
	"scaler/*":                       {".", "setting", "scaler"},
	"scaler/command":                 {".", "setting", "scaler", "internal/program", "internal/strictjson"},
	"scaler/dns":                     {".", "setting", "scaler", "internal/hostaddr"},
	"scaler/kubernetes":              {".", "setting", "scaler", "limit/pods", "internal/tick"},
	"scaler/kubernetes/controlplane": {"internal/need"},
	"scaler/aws/standin":             {"internal/need"},
	"sensor/pods":                    {".", "sensor", "internal/cgroup"},
	"scaler/process": {".", "setting", "scaler", "internal/lifeline", "internal/lockfile", "internal/atomicfile",
		"internal/webcheck", "internal/strictjson"},
	"limit":      {".", "internal/cgroup", "internal/lockfile", "internal/strictjson"},
	"limit/pods": {".", "limit"},
	"middleware": {".", "setting", "internal/atomicfile", "internal/lockfile", "internal/program", "internal/strictjson"},

	// Run. The controller knows its own small interfaces, no driver; the daemon sees both sides.
	"loadgen": {"."},
	"chart":   {".", "model", "report", "internal/figure"},
	"train":   {".", "stats", "model", "model/modelfile", "probe", "loadgen", "internal/lockfile", "internal/atomicfile", "internal/tick"},
	"config": {".", "balancer", "config/yaml", "setting", "limit", "loadgen", "middleware", "policy", "policy/table", "internal/webfile",
		"probe/local", "scaler", "sensor", "sensor/credits", "sensor/served"},
	"config/yaml": {".", "internal/namedfile", "setting"},
	"controller": {".", "agentless", "budget", "bus", "life", "model", "redline", "scaler", "switchback", "internal/outage", "policy",
		"setting", "internal/tick"},
	"diagnose": {".", "controller"},
	"tell":     {".", "controller"},
	"top":      {".", "bus", "controller", "setting", "tell", "internal/terminal"},
	"page":     {".", "bus", "controller", "setting", "tell", "internal/terminal"},
	"daemon":   {"*"},

	// Apparatus: plays, simulates and judges scenarios.
	"lab/scenario":         {".", "config", "config/yaml", "setting", "policy", "policy/table"},
	"lab/testbed/*":        {"."},
	"lab/testbed/emulated": {".", "sensor", "probe", "loadgen", "lab/testbed/demand", "internal/atomicfile"},
	"lab/testbed/kernel":   {".", "credit", "lab/testbed/demand", "internal/cgroup"},
	"lab/fluid":            {"budget"},
	"lab/tenants":          {".", "policy", "policy/table", "sensor"},
	"lab/sim": {".", "credit", "stats", "model", "policy", "policy/table", "life", "route", "lab/scenario", "loadgen", "train",
		"internal/tick"},
	"lab/arena": {".", "stats", "model", "model/modelfile", "policy", "policy/table", "lab/scenario", "lab/sim", "internal/lockfile",
		"internal/figure", "internal/strictjson"},
	"lab/experiment": {"*"},

	// Small shared packages. Some of them are only for tests.
	"internal/*":          {},
	"internal/webcheck":   {"setting"},
	"internal/figure":     {"internal/atomicfile"},
	"internal/certfile":   {".", "internal/namedfile", "internal/tick"},
	"internal/grpclimit":  {"internal/certfile", "internal/connlimit"},
	"internal/strictjson": {"."},
	"internal/lifeline":   {"."},
	"internal/golden":     {".", "setting"},
	"internal/guest":      {"internal/need"},

	"cmd/quell":   {"*"},
	"cmd/results": {"*"},
	"examples":    {},
	"examples/*":  {".", "balancer", "policy", "setting"},
	"packaging":   {"internal/need"},
}

// leaves lists, for some packages, the only packages that may import them.
var leaves = map[string][]string{
	"cmd/quell":      {},
	"cmd/results":    {},
	"daemon":         {"cmd/quell", "lab/experiment"},
	"lab/experiment": {"cmd/quell", "cmd/results"},
}

// forTests are the packages that only tests import.
var forTests = []string{"policy/policytest", "balancer/balancertest", "internal/need", "internal/golden", "internal/guest",
	"scaler/kubernetes/controlplane", "scaler/aws/standin"}

type listed struct {
	ImportPath string
	Imports    []string
}

// packages lists this module's packages with the go command, without tests.
func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list shows %d packages only: %v", len(all), all)
	}
	return all
}

// local turns an import path into a name of the table; ok is false for packages of other modules.
func local(importPath string) (name string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// allowed finds a package's row.
func allowed(name string) (row []string, ok bool) {
	if row, ok = mayImport[name]; ok {
		return row, true
	}
	row, ok = mayImport[path.Dir(name)+"/*"]
	return row, ok
}

// documented returns whether a package is a policy or a balancer's driver with a page of its name, which needs no row in ARCHITECTURE.md.
func documented(name string) bool {
	page, has := pageOf(name)
	_, err := os.Stat(page)
	return has && err == nil
}

// pageOf returns the page of a policy's or a driver's package.
func pageOf(name string) (page string, has bool) {
	folder, has := map[string]string{"policy": "docs/policies", "balancer": "docs/balancers"}[path.Dir(name)]
	return filepath.Join(folder, path.Base(name)+".md"), has
}

// documents says where a package that is not documented can be.
func documents(name string) string {
	row := "its row in ARCHITECTURE.md's table of packages"
	if page, has := pageOf(name); has {
		return page + ", or " + row
	}
	return row
}

// apparatus returns whether a package belongs to the lab.
func apparatus(name string) bool { return strings.HasPrefix(name, "lab/") }

func TestImportsPointOneWay(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages(t) {
		name, _ := local(p.ImportPath)
		if !strings.Contains(string(page), "`"+name+"`") && !documented(name) {
			t.Errorf("%s is not documented: write %s", name, documents(name))
		}
		row, ok := allowed(name)
		if !ok {
			t.Errorf("package %s has no row in mayImport: say there, and in ARCHITECTURE.md, what it may import", name)
			continue
		}
		for _, imports := range p.Imports {
			if imports == "testing" && !slices.Contains(forTests, name) {
				t.Errorf("%s imports testing outside its tests", name)
			}
			imported, ours := local(imports)
			if !ours {
				continue
			}
			if !slices.Contains(row, "*") && !slices.Contains(row, imported) && !slices.Contains(row, path.Dir(imported)+"/*") {
				t.Errorf("%s imports %s; it may import %v only", name, imported, row)
			}
			if apparatus(imported) && !apparatus(name) && !strings.HasPrefix(name, "cmd/") {
				t.Errorf("%s imports %s: nobody needs the lab to run Quell, so only cmd/ may see both", name, imported)
			}
			if importers, leaf := leaves[imported]; leaf && !slices.Contains(importers, name) {
				t.Errorf("%s imports %s, which only %v may", name, imported, importers)
			}
		}
	}
}

// The root package must import only the standard library, so that a program that reads a Plan needs nothing else. So must
// internal/histogram, which checks what readings hold.
func TestDomainUsesStandardLibraryOnly(t *testing.T) {
	for _, p := range packages(t) {
		if p.ImportPath != module && p.ImportPath != module+"/internal/histogram" {
			continue
		}
		for _, path := range p.Imports {
			if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") && path != module+"/internal/histogram" {
				t.Errorf("the root package imports %s", path)
			}
		}
	}
}

// pure are packages that decide. Whoever uses one of them links no parser of YAML and nothing that writes files. They import nothing with
// which they could open a file or a connection, and read no clock.
var pure = []string{".", "setting", "budget", "credit", "life", "model", "policy/table", "redline", "report", "route", "share", "stats",
	"switchback"}

// clock finds what reads or waits for the present time.
var clock = regexp.MustCompile(`\btime\.(Now|Since|Until|After|AfterFunc|Sleep|Tick|NewTimer|NewTicker)\(`)

func TestPurePackages(t *testing.T) {
	args := []string{"list", "-deps", "-f", "{{.ImportPath}} {{.Dir}} {{join .Imports \",\"}} {{join .GoFiles \",\"}}"}
	for _, name := range pure {
		args = append(args, "./"+name)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	ours := 0
	for line := range strings.Lines(string(out)) {
		words := strings.Split(strings.TrimSpace(line), " ")
		path, dir, imports, files := words[0], words[1], words[2], words[3]
		if strings.Contains(path, "yaml") || path == module+"/internal/atomicfile" {
			t.Errorf("one of %v links %s", pure, path)
		}
		if _, own := local(path); !own {
			continue
		}
		ours++
		for imported := range strings.SplitSeq(imports, ",") {
			if slices.Contains([]string{"os", "os/exec", "io/ioutil", "net/http", "syscall"}, imported) {
				t.Errorf("%s decides, and imports %s", path, imported)
			}
		}
		for file := range strings.SplitSeq(files, ",") {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if at := clock.Find(text); at != nil {
				t.Errorf("%s decides, and its %s calls %s): the time is an argument", path, file, at)
			}
		}
	}
	if ours < len(pure) {
		t.Fatalf("go list shows %s", out)
	}
}

// The controller and the simulator run the same code for the life of a group.
func TestLifeIsShared(t *testing.T) {
	for _, p := range packages(t) {
		if name, _ := local(p.ImportPath); (name == "controller" || name == "lab/sim") && !slices.Contains(p.Imports, module+"/life") {
			t.Errorf("%s does not import life", name)
		}
	}
}

func TestPackageNamesSaySomething(t *testing.T) {
	for _, p := range packages(t) {
		if base := path.Base(p.ImportPath); slices.Contains([]string{"util", "utils", "common", "helpers", "pkg", "misc", "base"}, base) {
			t.Errorf("%s: a package is named after what it provides", p.ImportPath)
		}
	}
}
