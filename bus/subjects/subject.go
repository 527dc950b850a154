// Package subjects names the subjects of the bus. Names of services and instances are escaped in them.
package subjects

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/quellhq/quell"
)

// Names become part of subjects, stream names and file names, so their length is limited.
const (
	MaxService  = 64
	MaxInstance = 255
)

// Escape turns any name into a token of [A-Za-z0-9_-] that is safe in subjects, stream names, keys and paths. Letters,
// digits and '-' stay, every other byte becomes '_' and two hex digits. Different names give different tokens.
func Escape(name string) string {
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

// Unescape reverses Escape; it accepts only what Escape produces.
func Unescape(token string) (string, error) {
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
		if err != nil || Escape(string(raw)) != token[i:i+3] {
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

// Service returns the token of a service.
func Service(name string) (string, error) { return Token("service", name, MaxService) }

// Token returns the token of a name, what says of what it is the name.
func Token(what, name string, longest int) (string, error) {
	if name == "" {
		return "", fault("a %s needs a name", what)
	}
	if len(name) > longest {
		return "", fault("%s name %.20q... has %d bytes; at most %d are possible", what, name, len(name), longest)
	}
	return Escape(name), nil
}

// noInstance is the token of quell.NoInstance. Escape produces it for no name.
const noInstance = "_"

// InstanceOf returns the instance in a reading's subject.
func InstanceOf(subject string) (string, error) {
	const before = 4
	for range before {
		_, subject, _ = strings.Cut(subject, ".")
	}
	escaped, _, _ := strings.Cut(subject, ".")
	if escaped == noInstance {
		return quell.NoInstance, nil
	}
	return Unescape(escaped)
}

// Reading is quell.<service>.reading.<source>.<instance>. Only a balancer has readings of no instance.
func Reading(service, instance string, source quell.Source) (string, error) {
	s, err := Service(service)
	if err != nil {
		return "", err
	}
	i := noInstance
	if instance != quell.NoInstance || source != quell.FromBalancer {
		if i, err = Token("instance", instance, MaxInstance); err != nil {
			return "", err
		}
	}
	src, err := Token("source", string(source), MaxService)
	if err != nil {
		return "", err
	}
	return "quell." + s + ".reading." + src + "." + i, nil
}

// Command is quell.<service>.command.
func Command(service string) (string, error) {
	s, err := Service(service)
	return "quell." + s + ".command", err
}

func fault(format string, args ...any) error {
	return &quell.UserError{Err: fmt.Errorf(format, args...)}
}
