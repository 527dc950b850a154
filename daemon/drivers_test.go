package daemon_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell/balancer/balancertest"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/setting"
)

// Every driver has its own name and description, and no key that is also a common key.
func TestDriversDeclareThemselves(t *testing.T) {
	seen := map[string]bool{}
	check := func(section, name, about string, table setting.Table, common ...string) {
		if name == "" || about == "" || seen[section+name] {
			t.Errorf("%s: a Kind has the Name %q and About %q: both must be set, and no other kind may have the name", section, name, about)
		}
		seen[section+name] = true
		for _, key := range table.Names() {
			if slices.Contains(common, key) {
				t.Errorf("%s %s has a key %s, which every kind has: put it below %s.%s", section, name, key, section, name)
			}
		}
	}
	for _, k := range daemon.Drivers().Balancers {
		check("balancer", k.Name, k.About, k.Defaults().Keys(), "kind", "name", "drain", "classes")
		balancertest.Settings(t, k.Defaults())
	}
	for _, k := range daemon.Drivers().Scalers {
		check("scaler", k.Name, k.About, k.Defaults().Keys(), "kind")
	}
	for _, k := range daemon.Drivers().Credits {
		check("agent.credits", k.Name, k.About, k.Defaults().Keys(), "kind")
	}
}

// Code uses a driver through its settings and never depends on its name. Packages below lab may contain drivers' names, because they write
// configurations.
func TestNobodyAsksForADriversKind(t *testing.T) {
	asks := regexp.MustCompile(`(Balancer|Scaler)\.Kind *(==|!=)|switch [^{]*(Balancer|Scaler)\.Kind|\b[a-z]+\.Kind\.Name`)
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err == nil && path == filepath.Join("..", "lab") {
			return filepath.SkipDir
		}
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if found := asks.Find(text); found != nil {
			t.Errorf("%s asks for a kind: %s", path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
