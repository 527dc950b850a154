package bundle

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

var (
	// tokens match what is scrubbed in JSON: texts, with the colon that makes them keys, and numbers.
	tokens = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(\s*:)?|-?[0-9][0-9.eE+-]*`)

	// fieldName matches keys that are names of fields. Other keys may be texts of the configuration.
	fieldName = regexp.MustCompile(`^[a-z][a-z_]{0,40}$`)

	// secretKey matches keys whose values are secret.
	secretKey = regexp.MustCompile(`(?i)pass(word|wd|phrase)|secret|token|api[-_]?key|access[-_]?key|^auth(orization)?$|cookie|credential|` +
		`pwd|session`)
)

// JSON removes secrets from a JSON value, which stays valid JSON: only its texts and numbers are replaced, and keys that are no names of
// fields. What is not valid JSON is left out.
func (s *Scrubber) JSON(data []byte) []byte {
	if !json.Valid(data) {
		return []byte(quoted(Removed))
	}
	key := ""
	return tokens.ReplaceAllFunc(data, func(token []byte) []byte {
		text, colon := string(token), bytes.HasSuffix(token, []byte(":"))
		if token[0] == '"' {
			_ = json.Unmarshal(bytes.TrimRight(token, ": \t\r\n"), &text) // it is a text of valid JSON
		}
		clean := s.replacer().Replace(text)
		if token[0] == '"' {
			clean = string(s.Text([]byte(text)))
		}
		switch {
		case colon:
			if key = text; !fieldName.MatchString(key) && clean != text {
				return []byte(quoted(clean) + ":")
			}
		case secretKey.MatchString(key):
			return []byte(quoted(Removed))
		case clean != text:
			return []byte(quoted(clean))
		}
		return token
	})
}

// JSONLines is JSON for a file with one value in each line.
func (s *Scrubber) JSONLines(data []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" {
			out.Write(append(s.JSON([]byte(line)), '\n'))
		}
	}
	return out.Bytes()
}

// quoted writes a text as JSON.
func quoted(text string) string {
	out, _ := json.Marshal(text) // a text cannot fail
	return string(out)
}
