package middleware

import (
	"os"
	"strings"
	"testing"
)

// A record in which one character changed is refused: the original in it would be a wrong one.
func TestADamagedRecordIsRefused(t *testing.T) {
	for _, field := range []string{`"original": "`, `"wrote": [
    "`} {
		r := newToy(t)
		d := r.open()
		r.set(d, "workers", 20)
		beside := d.files[r.config].beside("original")
		data, err := os.ReadFile(beside)
		if err != nil {
			t.Fatal(err)
		}
		r.close(d)
		at := strings.Index(string(data), field)
		if at < 0 {
			t.Fatalf("no %s in\n%s", field, data)
		}
		at += len(field) + 2
		if data[at] == '0' {
			data[at] = '1'
		} else {
			data[at] = '0'
		}
		if err := os.WriteFile(beside, data, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := openFile(r.config)
		if err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: the record was accepted: %+v, %v", field, f, err)
		}
	}
}
