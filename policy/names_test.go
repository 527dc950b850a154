package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// A policy's name appears only in its own files and in no other Go file. The only exception is the default policy of a service.
func TestAPolicysNameIsItsOwn(t *testing.T) {
	root := ".."
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && path != root || e.Name() == "bin"):
			return fs.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(literal.Value); err == nil && slices.Contains(everyName(), text) && !mayName(path, text) {
				t.Errorf("%s names the policy %s", path, text)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func everyName() []string {
	return slices.Concat(all.Names(), all.NamesOf(policy.FastScope), all.NamesOf(policy.HostScope))
}

func mayName(path, name string) bool {
	own := []string{filepath.Join("..", "policy", name+".go"), filepath.Join("..", "model", name+".go")}
	if strings.HasPrefix(path, filepath.Join("..", "cmd", "results")+string(filepath.Separator)) {
		return true // pages of results are named after their subject
	}
	if name == "pid" {
		return true // also the key of a process's number
	}
	if strings.HasPrefix(path, filepath.Join("..", "model", name+"_")) {
		return true
	}
	return slices.Contains(own, path) || path == filepath.Join("..", "service.go") && name == all.Default()
}

// Every policy has a page. The list of pages has the same policies as the table, and the default policy comes first.
func TestPoliciesAreDocumented(t *testing.T) {
	if got := quell.DefaultService().Policy.Name; got != all.Default() {
		t.Errorf("the default is %s, the first row %s", got, all.Default())
	}
	docs := filepath.Join("..", "docs", "policies")
	list, err := os.ReadFile(filepath.Join(docs, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range everyName() {
		page, err := os.ReadFile(filepath.Join(docs, name+".md"))
		if err != nil || !strings.HasPrefix(string(page), "# "+name) {
			t.Errorf("%s.md does not begin with the policy's name: %v", name, err)
		}
		if row := "| [" + name + "](" + name + ".md) | " + all.About(name) + " |\n"; !strings.Contains(string(list), row) {
			t.Errorf("README.md lacks the row\n%s", row)
		}
	}
}

func TestAPolicyTakesItsOwnSettingsOnly(t *testing.T) {
	s := golden(all.Default(), 75, 0)
	s.Policy.Settings = policy.HPASettings{Utilization: .5}
	if _, err := all.NewEngine(s, goldenModels(t)); err == nil || !strings.Contains(err.Error(), "settings of another one") {
		t.Errorf("got %v", err)
	}
	if got := all.Difference(quell.Policy{Name: "hpa"},
		quell.Policy{Name: "hpa", Settings: policy.HPASettings{Resource: quell.Network, Utilization: .65}}); got != "utilization 65%" {
		t.Errorf("the difference is %q", got)
	}
}
