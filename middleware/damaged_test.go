package middleware

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// A record in which one bit changed is refused, whichever it is: the original in it would be a wrong one. White space may change.
func TestADamagedRecordIsRefused(t *testing.T) {
	r := newToy(t)
	d := r.open()
	r.set(d, "workers", 20)
	path := d.files[r.config].beside("original")
	record, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &file{path: r.config}
	if err := f.recall(); err != nil {
		t.Fatal(err)
	}
	want := *f.record
	for at := range record {
		for bit := range 8 {
			edited := bytes.Clone(record)
			edited[at] ^= 1 << bit
			if err := os.WriteFile(path, edited, 0o600); err != nil {
				t.Fatal(err)
			}
			f := &file{path: r.config}
			err := f.recall()
			if same := err == nil && f.record.Sum == want.Sum && bytes.Equal(f.record.Original, want.Original); same {
				continue
			}
			if err == nil || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("bit %d of byte %d, in %q: the record was accepted: %+v, %v", bit, at, edited[max(0, at-10):at+1], f.record, err)
			}
		}
	}
}
