package policy_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	files "github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/rivals"
	"github.com/quellhq/quell/policy/waits"
)

// Every policy has a page. The default policy is the first of the table.
func TestPoliciesAreDocumented(t *testing.T) {
	if got := quell.DefaultService().Policy.Name; got != all.Default() {
		t.Errorf("the default is %s, the first row %s", got, all.Default())
	}
	for _, name := range slices.Concat(all.Names(), all.NamesOf(policy.FastScope), all.NamesOf(policy.HostScope)) {
		page, err := os.ReadFile(filepath.Join("..", "docs", "policies", name+".md"))
		if err != nil || !strings.HasPrefix(string(page), "# "+name) {
			t.Errorf("docs/policies/%s.md does not begin with \"# %s\": %v", name, name, err)
		}
	}
}

// The list of pages has the policies of the table, by scope.
func TestPoliciesReference(t *testing.T) {
	path := filepath.Join("..", "docs", "policies", "README.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, scope := range []policy.Scope{policy.ServiceScope, policy.FastScope, policy.HostScope} {
		begin, end := fmt.Sprintf("<!-- policies %s: begin -->\n", scope), fmt.Sprintf("<!-- policies %s: end -->\n", scope)
		before, rest, begins := strings.Cut(text, begin)
		_, after, ends := strings.Cut(rest, end)
		if !begins || !ends {
			t.Fatalf("%s lacks the marks of the table of scope %s", path, scope)
		}
		rows := "| policy | what it does |\n|---|---|\n"
		for _, name := range all.NamesOf(scope) {
			rows += fmt.Sprintf("| [%s](%s.md) | %s |\n", name, name, all.About(name))
		}
		text = before + begin + rows + end + after
	}
	files.Compare(t, path, []byte(text))
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
