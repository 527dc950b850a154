package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
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

func TestNewEngineNamesWhatIsMissing(t *testing.T) {
	noResponse := goldenModels(t)
	noResponse.Prima().ResponseTime = nil
	for _, tc := range []struct {
		policy string
		models *model.Models
		want   string
	}{
		{"prima", nil, "isolation.network"},
		{"prima", noResponse, "response_time.network"},
	} {
		_, err := all.NewEngine(golden(tc.policy, 75, 0), tc.models)
		if !errors.Is(err, quell.ErrNoData) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want ErrNoData naming %s", tc.policy, err, tc.want)
		}
	}
	for _, name := range []string{"static", "lsf", "lr", "hpa", "knapsack"} {
		if _, err := all.NewEngine(golden(name, 75, 0), nil); err != nil {
			t.Errorf("%s needs no models: %v", name, err)
		}
	}
	var user *quell.UserError
	if _, err := all.NewEngine(golden("prma", 75, 0), nil); !errors.As(err, &user) ||
		!strings.Contains(err.Error(), "known: prima, lsf, lr, static, hpa, knapsack") {
		t.Errorf("got %v", err)
	}
	bad := golden("lsf", 75, 0)
	tell(&bad, "Confidence", 2)
	if _, err := all.NewEngine(bad, goldenModels(t)); err == nil || !strings.Contains(err.Error(), "confidence") {
		t.Errorf("a confidence of 2 was swallowed: %v", err)
	}
}
