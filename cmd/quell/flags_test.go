package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDefaultConfig(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.yaml"), filepath.Join(dir, "second.yaml")
	places := []string{first, second}
	if got, err := defaultConfig("named.yaml", places); got != "named.yaml" || err != nil {
		t.Errorf("the environment names named.yaml: got %q, %v", got, err)
	}
	if _, err := defaultConfig("", places); err == nil ||
		!strings.Contains(err.Error(), "give --config FILE, set QUELL_CONFIG, or make "+first+" or "+second) {
		t.Errorf("nothing is there: %v", err)
	}
	for _, path := range []string{second, first} { // the later one first, so that each is the result once
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := defaultConfig("", places); got != path || err != nil {
			t.Errorf("%s is there: got %q, %v", path, got, err)
		}
	}
}
