package policytest

import (
	"encoding/json"
	"errors"

	"pgregory.net/rapid"

	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/policy"
)

// Text returns a value as JSON.
func Text(t rapid.TB, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("cannot be written: %v", err)
	}
	return string(data)
}

// Reread returns a memory as it is after it was stored and read back.
func (k Kit) Reread(t rapid.TB, st policy.State) (back policy.State) {
	if err := errors.Join(strictjson.Decode([]byte(Text(t, st)), &back), k.Restore(&back)); err != nil {
		t.Fatal(err)
	}
	return back
}

// Read reads a stored memory, as the controller does.
func (k Kit) Read(data []byte, into *policy.State) error {
	if err := json.Unmarshal(data, into); err != nil {
		return err
	}
	return k.Restore(into)
}
