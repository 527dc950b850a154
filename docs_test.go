package quell_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

// pages returns the text of the documentation's pages, by path. What a release changed stays as it was said then.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
	}
	delete(texts, "CHANGELOG.md")
	if len(texts) < 50 {
		t.Fatalf("only %d pages", len(texts))
	}
	return texts
}

// A page that rests on a test names one that exists.
func TestNamedTestsExist(t *testing.T) {
	declared := map[string]bool{}
	declares := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range declares.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names, n := regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z]\\w+)`"), 0
	for page, text := range pages(t) {
		for _, m := range names.FindAllStringSubmatch(text, -1) {
			if n++; !declared[m[1]] {
				t.Errorf("%s: there is no %s", page, m[1])
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d names were found", n)
	}
}

// Metrics that a page names exist: their whole names are in the code, or their names without what a registry puts before them.
func TestNamedMetricsExist(t *testing.T) {
	quoted, declared := regexp.MustCompile(`"([a-z]+(?:_[a-z0-9]+)+)"`), map[string]bool{}
	sources(t, ".", func(_, text string) {
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			declared[m[1]] = true
		}
	})
	named, n := regexp.MustCompile("`(quell_[a-z_]+[a-z])(?:\\{[^`]*)?`"), 0
	for page, text := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			_, bare, _ := strings.Cut(m[1], "_")
			_, barer, _ := strings.Cut(bare, "_")
			if n++; !declared[m[1]] && !declared[bare] && !declared[barer] {
				t.Errorf("%s: there is no metric %s", page, m[1])
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d metrics were found", n)
	}
}

// reference returns the rows of the configuration's reference, which another test compares with the program: keys with their defaults, and
// the settings of each policy with theirs.
func reference(t *testing.T) (keys map[string]string, policies map[string]map[string]string) {
	t.Helper()
	text, err := os.ReadFile("docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "<!-- config reference: begin -->")
	table, _, _ = strings.Cut(table, "<!-- config reference: end -->")
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*?) \\| (?:((?:[a-z]+, )*[a-z]+): )?")
	keys, policies = map[string]string{}, map[string]map[string]string{}
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		key, value := m[1], strings.Trim(m[2], "`")
		keys[strings.ReplaceAll(key, "[]", "")] = value
		of, own := strings.CutPrefix(strings.TrimPrefix(key, "agent."), "policy.")
		if of = strings.TrimPrefix(of, "fast."); !own || of == "name" || strings.Contains(of, ".") {
			continue
		}
		for _, name := range strings.Split(m[3], ", ") {
			if policies[name] == nil {
				policies[name] = map[string]string{}
			}
			policies[name][of] = value
		}
	}
	return keys, policies
}

// Keys of the configuration that a page names exist.
func TestNamedKeysExist(t *testing.T) {
	keys, _ := reference(t)
	known, tops := map[string]bool{}, map[string]bool{}
	for key := range keys {
		parts := strings.Split(key, ".")
		tops[parts[0]] = true
		for i := range parts {
			known[strings.Join(parts[:i+1], ".")] = true
		}
	}
	// Files, and attributes of OpenTelemetry, whose names look like keys.
	others := []string{"agent.sock", "balancer.creds", "balancer.sock", "balancer.sock.backends.json", "balancer.sock.owner.json", "guard.go",
		"models.json", "service.instance.id", "service.name"}
	named, n := regexp.MustCompile("`([a-z_]+(?:(?:\\[\\])?\\.[a-z_]+)+)(?:: [^`]*)?`"), 0
	for page, text := range pages(t) {
		if before, rest, ok := strings.Cut(text, "<!-- scenario reference: begin -->"); ok {
			_, after, _ := strings.Cut(rest, "<!-- scenario reference: end -->")
			text = before + after
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			key := strings.ReplaceAll(m[1], "[]", "")
			if top, _, _ := strings.Cut(key, "."); !tops[top] || slices.Contains(others, key) {
				continue
			}
			if n++; !known[key] {
				t.Errorf("%s: there is no key %s", page, key)
			}
		}
	}
	if n < 500 {
		t.Errorf("only %d keys were found", n)
	}
}

// The page of a policy names all of its settings, and says their defaults as they are: in a table, or as `key` (default).
func TestPoliciesSettingsAreDocumented(t *testing.T) {
	_, policies := reference(t)
	texts, n := pages(t), 0
	row := regexp.MustCompile("(?m)^\\| (`[a-z_]+`(?:, `[a-z_]+`)*) \\|([^|]*)\\|")
	inText := regexp.MustCompile("`([a-z_]+)`\\s\\(([^):;]+)[):;]")
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		text, settings := texts["docs/policies/"+name+".md"], policies[name]
		if name == "" || text == "" {
			continue // keys below one of a policy
		}
		said := map[string]string{}
		_, section, ok := strings.Cut(text, "\n## Settings\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, m := range row.FindAllStringSubmatch(section, -1) {
			keys, values := strings.Split(m[1], ", "), strings.Split(m[2], ", ")
			for i, key := range keys {
				said[strings.Trim(key, "`")] = strings.Trim(values[min(i, len(values)-1)], "` ")
			}
		}
		for _, m := range inText.FindAllStringSubmatch(section, -1) {
			if key := m[1]; said[key] == "" {
				said[key] = strings.Trim(m[2], "` ")
			}
		}
		for key, value := range settings {
			n++
			got, told := said[key]
			word, _, _ := strings.Cut(value, ":")
			switch {
			case !ok || !told:
				t.Errorf("docs/policies/%s.md: section Settings lacks %s, default %q", name, key, value)
			case value != "" && got != word && !strings.HasPrefix(value, got):
				t.Errorf("docs/policies/%s.md: the default of %s is %q, not %q", name, key, value, got)
			}
		}
	}
	if n < 70 {
		t.Errorf("only %d settings were found", n)
	}
}

// The page of a policy names every reason that its own code gives, and none that does not exist.
func TestPoliciesReasonsAreDocumented(t *testing.T) {
	texts, word := pages(t), regexp.MustCompile("`([a-z]+(?:_[a-z]+)*)`")
	_, policies := reference(t)
	notReasons := []string{"quell_cut", "tenants"}
	files, err := filepath.Glob("policy/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if name == "rivals" {
			name = strings.TrimSuffix(filepath.Base(file), ".go")
		}
		page, ok := texts["docs/policies/"+name+".md"]
		_, section, said := strings.Cut(page, "\n## What its plans say\n")
		if !ok || strings.HasSuffix(file, "_test.go") {
			continue
		}
		if !said {
			t.Errorf("docs/policies/%s.md has no section What its plans say", name)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var given []string
		for _, m := range givenCode.FindAllStringSubmatch(string(text), -1) {
			given = append(given, m[1]+m[2])
		}
		for _, m := range quotedWord.FindAllStringSubmatch(string(text), -1) {
			code := m[1]
			if (quell.Reason{Code: code}).Kind().Means == "" {
				continue
			}
			if _, key := policies[name][code]; key && !slices.Contains(given, code) {
				continue // the key of a setting here, and a reason elsewhere
			}
			if n++; !strings.Contains(section, "`"+code+"`") {
				t.Errorf("docs/policies/%s.md: what its plans say lacks %s, which %s gives", name, code, file)
			}
		}
		for _, m := range word.FindAllStringSubmatch(section, -1) {
			if (quell.Reason{Code: m[1]}).Kind().Means == "" && !slices.Contains(notReasons, m[1]) {
				t.Errorf("docs/policies/%s.md: there is no reason %s", name, m[1])
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d reasons were found", n)
	}
}
