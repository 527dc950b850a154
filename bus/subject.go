package bus

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/quellhq/quell"
)

// Names become part of subjects, stream names and file names, so their length is limited.
const (
	maxServiceName  = 64
	maxInstanceName = 255
)

// escape turns any name into a token of [A-Za-z0-9_-] that is safe in subjects, stream names, keys and paths. Letters,
// digits and '-' stay, every other byte becomes '_' and two hex digits. Different names give different tokens.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if plain(name[i]) {
			b.WriteByte(name[i])
		} else {
			fmt.Fprintf(&b, "_%02x", name[i])
		}
	}
	return b.String()
}

// unescape reverses escape; it accepts only what escape produces.
func unescape(token string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if plain(token[i]) {
			b.WriteByte(token[i])
			continue
		}
		if token[i] != '_' || i+3 > len(token) {
			return "", fmt.Errorf("%q is not an escaped name", token)
		}
		raw, err := hex.DecodeString(token[i+1 : i+3])
		if err != nil || escape(string(raw)) != token[i:i+3] {
			return "", fmt.Errorf("%q is not an escaped name", token)
		}
		b.Write(raw)
		i += 2
	}
	return b.String(), nil
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

func serviceToken(name string) (string, error) { return token("service", name, maxServiceName) }

func token(what, name string, longest int) (string, error) {
	if name == "" {
		return "", userErrorf("a %s needs a name", what)
	}
	if len(name) > longest {
		return "", userErrorf("%s name %.20q... has %d bytes; at most %d are possible", what, name, len(name), longest)
	}
	return escape(name), nil
}

// instanceOf returns the instance in a reading's subject.
func instanceOf(subject string) (string, error) {
	const before = 4
	for range before {
		_, subject, _ = strings.Cut(subject, ".")
	}
	escaped, _, _ := strings.Cut(subject, ".")
	return unescape(escaped)
}

// readingSubject is quell.<service>.reading.<source>.<instance>.
func readingSubject(service, instance string, source quell.Source) (string, error) {
	s, err := serviceToken(service)
	if err != nil {
		return "", err
	}
	i, err := token("instance", instance, maxInstanceName)
	if err != nil {
		return "", err
	}
	src, err := token("source", string(source), maxServiceName)
	if err != nil {
		return "", err
	}
	return "quell." + s + ".reading." + src + "." + i, nil
}

// commandSubject is quell.<service>.command.
func commandSubject(service string) (string, error) {
	s, err := serviceToken(service)
	return "quell." + s + ".command", err
}
