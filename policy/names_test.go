package policy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/rivals"
	"github.com/quellhq/quell/policy/waits"
)

func everyName() []string {
	return slices.Concat(all.Names(), all.NamesOf(policy.FastScope), all.NamesOf(policy.HostScope))
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
	s.Policy.Settings = rivals.HPASettings{Utilization: .5}
	if _, err := all.NewEngine(s, goldenModels(t)); err == nil || !strings.Contains(err.Error(), "settings of another one") {
		t.Errorf("got %v", err)
	}
	if got := all.Difference(quell.Policy{Name: "hpa"},
		quell.Policy{Name: "hpa", Settings: rivals.HPASettings{Resource: quell.Network, Utilization: .65}}); got != "utilization 65%" {
		t.Errorf("the difference is %q", got)
	}
}

func TestPoliciesDecideInTheirScopeOnly(t *testing.T) {
	s := golden(all.Default(), 75, 0)
	s.Policy = quell.Policy{Name: waits.Spec.Name}
	if _, err := all.NewEngine(s, nil); err == nil || !strings.Contains(err.Error(), "it runs on each machine, as agent.policy") {
		t.Errorf("a host's policy for a service: %v", err)
	}
	if _, err := all.NewHostEngine(quell.Policy{Name: all.Default()}); err == nil ||
		!strings.Contains(err.Error(), "it decides for a service, as policy.name") {
		t.Errorf("a service's policy for a host: %v", err)
	}
}
