// Package bundle makes an archive for a bug report that has no secrets. What a configuration says is kept only where the key is known to be
// harmless; from other texts everything is removed that the configuration hides, and what looks like a secret. It is pure.
package bundle

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Removed stands for what was removed.
const Removed = "(removed)"

// harmless are the keys of a configuration whose texts say nothing secret. Numbers, durations and shares are kept with every key that does
// not name a secret, yes and no always.
var harmless = map[string]bool{
	"service": true, "name": true, "kind": true, "metric": true, "mode": true, "models": true, "resource": true, "interference_model": true,
	"scale_out": true, "scheduling": true, "balance": true, "plan": true, "testbed": true, "arrivals": true, "pooling": true, "id": true,
	"slots": true, "backend": true, "upstream": true, "of": true, "interface": true, "authority": true, "share": true, "rule": true,
	"by": true, "change": true, "traffic": true, "from": true, "zero": true, "policy": true, "fast": true, "services": true, "probes": true,
}

// plain matches values that are no texts: numbers with an optional unit, and yes or no.
var plain = regexp.MustCompile(`^[+-]?[0-9]{1,9}([.][0-9]{1,9})?(e[+-]?[0-9]{1,2})?\s?[A-Za-z%/]{0,5}$|` +
	`^(true|false|null|on|off|auto|learn)?$`)

// word matches a harmless key's value.
var word = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,40}$`)

// Scrubber removes secrets from texts.
type Scrubber struct {
	hidden map[string]bool // texts of the configuration that are removed everywhere
	remove *strings.Replacer
}

// shortest is the length of the shortest text of a configuration that is removed from other texts, too: shorter ones are parts of words.
const shortest = 4

// Config returns a configuration in which every text that may be secret is removed, without comments, and remembers these texts. A file
// that is not YAML is removed as a whole.
func (s *Scrubber) Config(data []byte) []byte {
	var root any
	if err := yaml.UnmarshalWithOptions(data, &root, yaml.UseOrderedMap()); err != nil {
		s.Hide(string(data))
		return []byte("# The configuration is not valid YAML and was left out.\n")
	}
	out, err := yaml.Marshal(s.visit(root, ""))
	if err != nil {
		return []byte("# The configuration could not be written and was left out.\n")
	}
	return out
}

// visit returns a value of the configuration without secrets. key is what it belongs to.
func (s *Scrubber) visit(value any, key string) any {
	switch v := value.(type) {
	case yaml.MapSlice:
		for i := range v {
			name := fmt.Sprint(v[i].Key)
			v[i].Value = s.visit(v[i].Value, name)
			if !word.MatchString(name) || suspicious(name) {
				s.Hide(name)
				v[i].Key = fmt.Sprintf("removed%d", i)
			}
		}
		return v
	case []any:
		name := key
		for i := range v {
			text, _ := v[i].(string)
			v[i] = s.visit(v[i], name)
			if name = key; secretKey.MatchString(text) { // an argument of a program, as --password, names the next one
				name = text
			}
		}
		return v
	case nil, bool:
		return v
	}
	text := fmt.Sprint(value)
	if !namesSecret(key) && (plain.MatchString(text) || harmless[key] && word.MatchString(text) && !suspicious(text)) {
		return value
	}
	s.Hide(text)
	return Removed
}

// namesSecret returns whether the value of a key of a configuration is secret whatever it looks like: a token may be a number.
func namesSecret(key string) bool {
	return secretKey.MatchString(key) || strings.HasSuffix(strings.ToLower(key), "key")
}

// Hidden returns the texts that are removed everywhere.
func (s *Scrubber) Hidden() []string { return slices.Sorted(maps.Keys(s.hidden)) }

// replacer removes all hidden texts in one pass, whatever their number; of several that begin at the same place, the longest.
func (s *Scrubber) replacer() *strings.Replacer {
	if s.remove == nil {
		texts := s.Hidden()
		slices.SortStableFunc(texts, func(a, b string) int { return len(b) - len(a) })
		pairs := make([]string, 0, 2*len(texts))
		for _, text := range texts {
			pairs = append(pairs, text, Removed)
		}
		s.remove = strings.NewReplacer(pairs...)
	}
	return s.remove
}

// Hide removes texts from everything that is scrubbed afterwards. Of a text of several lines or words, each is removed.
func (s *Scrubber) Hide(texts ...string) {
	for _, text := range texts {
		for _, part := range append(strings.Fields(text), strings.TrimSpace(text)) {
			if len(part) >= shortest && part != Removed {
				if s.hidden == nil {
					s.hidden = map[string]bool{}
				}
				s.hidden[part], s.remove = true, nil
			}
		}
	}
}

// secrets match what looks like a secret, whoever wrote it.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]+-----.*?(-----END [A-Z0-9 ]+-----|$)`),
	regexp.MustCompile(`(?i)\b(bearer|basic|digest)\s+[A-Za-z0-9+/=._~-]{4,}`),
	regexp.MustCompile(`(?i)(pass(word|wd|phrase)?|secret|token|api[-_]?key|access[-_]?key|cookie|credential|pwd|session)` +
		`[a-z0-9_-]*["']?\s*[:= ]\s*["']?[^\s"',;&}]+`),
	regexp.MustCompile(`(?i)auth(orization|entication)?([_-][a-z0-9_-]*)?["']?\s*[:= ]\s*["']?[^\s"',;&}]+`), // not "authority"
	regexp.MustCompile(`://[^/\s"'@]+@`),
	regexp.MustCompile(`\?[^\s"'<>]+`),
	regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{12,}`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}([.][A-Za-z0-9_-]+)*`),
	regexp.MustCompile(`\bS[A-Z][A-Z2-7]{40,}`),
	regexp.MustCompile(`\b(gh[pousr]_|xox[abprs]-|sk-|glpat-)[A-Za-z0-9_-]{8,}`),
	regexp.MustCompile(`[A-Za-z0-9+/_=-]{32,}`),
}

// suspicious returns whether a text looks like a secret.
func suspicious(text string) bool {
	return slices.ContainsFunc(secrets, func(r *regexp.Regexp) bool { return r.MatchString(text) })
}

// Text removes secrets from a text.
func (s *Scrubber) Text(data []byte) []byte {
	for _, r := range secrets {
		data = r.ReplaceAll(data, []byte(Removed))
	}
	return []byte(s.replacer().Replace(string(data)))
}
