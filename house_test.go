package quell_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxLines is the limit of a package of the product, without tests. ARCHITECTURE.md says why some have more. maxMethods is the limit of a
// type, and maxFields that of the controller, where an embedded struct counts as one.
const (
	maxLines   = 2500
	maxMethods = 25
	maxFields  = 20
)

// manyMethods are the types that still have more methods than that, and how many they may have. Numbers here only fall.
var manyMethods = map[string]int{
	"bus.Conn": 63, "policy/prima.plan": 61, "middleware.Driver": 53, "balancer/haproxy.Driver": 49,
	"balancer/builtin.Server": 39, "policy.Table": 40, "scaler/kubernetes.Driver": 40, "scaler/process.Driver": 36, "policy/ice.plan": 35,
	"policy.Member":    34,
	"cmd/quell.labRun": 29,
}

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

func goList(t *testing.T, args ...string) (all []goPackage) {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Export,GoFiles"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// product returns whether a package is part of what users run.
func product(name string) bool {
	return !apparatus(name) && name != "cmd/results" && name != "packaging" && !strings.HasPrefix(name, "examples")
}

// largeRow is a row of ARCHITECTURE.md's table of large packages.
var largeRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9,]+) \\| .{20,} \\|$")

// Packages have at most maxLines lines. Those with a reason to have more are on the page, with a limit of their own that is near.
func TestPackagesAreSmall(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	limits := map[string]int{}
	for _, row := range largeRow.FindAllStringSubmatch(string(page), -1) {
		if limits[row[1]], err = strconv.Atoi(strings.ReplaceAll(row[2], ",", "")); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range goList(t, "./...") {
		name, _ := local(p.ImportPath)
		if !product(name) {
			continue
		}
		lines := 0
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(text, []byte("\n"))
		}
		limit, large := limits[name]
		delete(limits, name)
		switch {
		case !large && lines > maxLines:
			t.Errorf("%s has %d lines without tests: divide it, or say in ARCHITECTURE.md why it has more than %d", name, lines, maxLines)
		case large && lines > limit:
			t.Errorf("%s has %d lines, and ARCHITECTURE.md allows %d: take a piece out of it", name, lines, limit)
		case large && lines < limit-300:
			t.Errorf("%s has %d lines only: lower its limit of %d in ARCHITECTURE.md, or take out its row", name, lines, limit)
		}
	}
	for name := range limits {
		t.Errorf("ARCHITECTURE.md gives a reason for %s, which is no package of the product", name)
	}
}

func TestTypesHaveFewMethods(t *testing.T) {
	counts := map[string]int{}
	for _, p := range goList(t, "./...") {
		name, _ := local(p.ImportPath)
		if !product(name) {
			continue
		}
		for _, file := range parse(t, token.NewFileSet(), p) {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
					counts[name+"."+receiver(f.Recv.List[0].Type)]++
				}
			}
		}
	}
	for name, n := range counts {
		if limit := max(maxMethods, manyMethods[name]); n > limit {
			t.Errorf("%s has %d methods; at most %d", name, n, limit)
		}
	}
	if n := fieldsOf(t, "./controller", "Controller"); n < 5 || n > maxFields {
		t.Errorf("controller.Controller has %d fields; at most %d", n, maxFields)
	}
	for name, limit := range manyMethods {
		if n := counts[name]; n <= maxMethods || n < limit-5 {
			t.Errorf("%s has %d methods only: lower its limit of %d", name, n, limit)
		}
	}
}

// fieldsOf counts the fields of a struct.
func fieldsOf(t *testing.T, pattern, name string) (n int) {
	t.Helper()
	for _, file := range parse(t, token.NewFileSet(), goList(t, pattern)[0]) {
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, ok := node.(*ast.TypeSpec); ok && spec.Name.Name == name {
				n = 0
				for _, f := range spec.Type.(*ast.StructType).Fields.List {
					n += max(1, len(f.Names))
				}
			}
			return true
		})
	}
	return n
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func parse(t *testing.T, set *token.FileSet, p goPackage) (files []*ast.File) {
	t.Helper()
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// arrow leads from a file of a package to a file that declares something that the first one uses: a function, method, type, field,
// variable or constant.
type arrow struct{ from, to string }

// The files of a large package can be read in an order in which hardly any uses what comes later. Of the arrows between them, so few run up
// in the order that suits them best, as a share of all.
var upward = map[string]float64{"controller": 0.2, "policy": 0.2, "bus": 0.2, "model": 0.2}

func TestFilesOfAPackageHaveAnOrder(t *testing.T) {
	for name, limit := range upward {
		files, arrows := arrowsIn(t, "./"+name)
		up := againstOrder(files, arrows)
		t.Logf("%s: %d files, %d arrows, of which %d run up", name, len(files), len(arrows), up)
		if len(arrows) < 50 || float64(up) > limit*float64(len(arrows)) {
			t.Errorf("%s: %d of %d arrows between its files run up; at most %.0f%% may", name, up, len(arrows), 100*limit)
		}
	}
}

func arrowsIn(t *testing.T, pattern string) (files []string, arrows []arrow) {
	t.Helper()
	list := goList(t, "-export", "-deps", pattern)
	exports := map[string]string{}
	for _, p := range list {
		exports[p.ImportPath] = p.Export
	}
	p, set := list[len(list)-1], token.NewFileSet()
	conf := types.Config{Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := conf.Check(p.ImportPath, set, parse(t, set, p), info)
	if err != nil {
		t.Fatal(err)
	}
	fileOf := func(pos token.Pos) string { return filepath.Base(set.Position(pos).Filename) }
	all := map[arrow]bool{}
	for ident, used := range info.Uses {
		if a := (arrow{fileOf(ident.Pos()), fileOf(used.Pos())}); used.Pkg() == pkg && a.from != a.to {
			all[a] = true
		}
	}
	return p.GoFiles, slices.SortedFunc(maps.Keys(all), func(a, b arrow) int { return strings.Compare(a.from+" "+a.to, b.from+" "+b.to) })
}

// againstOrder returns how many arrows run up in an order in which moving no single file leaves fewer.
func againstOrder(files []string, arrows []arrow) int {
	order := slices.Clone(files)
	uses := map[arrow]int{}
	for _, a := range arrows {
		uses[a] = 1
	}
	up := 0
	for i := range order {
		for _, earlier := range order[:i] {
			up += uses[arrow{order[i], earlier}]
		}
	}
	for better := true; better; {
		better = false
		for i := 0; i < len(order); i++ {
			file, best, to, gain := order[i], 0, i, 0
			for j := i + 1; j < len(order); j++ { // moving a file turns the arrows between it and those that it passes
				if gain += uses[arrow{file, order[j]}] - uses[arrow{order[j], file}]; gain < best {
					best, to = gain, j
				}
			}
			gain = 0
			for j := i - 1; j >= 0; j-- {
				if gain += uses[arrow{order[j], file}] - uses[arrow{file, order[j]}]; gain < best {
					best, to = gain, j
				}
			}
			if best < 0 {
				up, better = up+best, true
				order = slices.Insert(slices.Delete(order, i, i+1), to, file)
			}
		}
	}
	return up
}
