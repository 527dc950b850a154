package balancer

import (
	"slices"
	"testing"
)

func TestResolve(t *testing.T) {
	for address, want := range map[string]string{"10.0.0.1:80": "10.0.0.1:80", "[::1]:443": "[::1]:443", "[::ffff:10.0.0.1]:80": "10.0.0.1:80",
		"localhost:http": "127.0.0.1:80"} {
		list, err := Resolve(t.Context(), address)
		var texts []string
		for _, a := range list {
			texts = append(texts, a.String())
		}
		if err != nil || !slices.Contains(texts, want) {
			t.Errorf("%s: %v, %v, want %s", address, texts, err, want)
		}
	}
	for _, address := range []string{"", "10.0.0.1", "10.0.0.1:nonsense", ":", "a.invalid:80"} {
		if list, err := Resolve(t.Context(), address); err == nil {
			t.Errorf("%q: %v", address, list)
		}
	}
}
