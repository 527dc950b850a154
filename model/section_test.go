package model

import "testing"

// No two sections read the same key, and no section reads a key that belongs to the whole file.
func TestSectionsShareNoKey(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range known() {
		if seen[name] {
			t.Errorf("key %q is there twice", name)
		}
		seen[name] = true
	}
}
