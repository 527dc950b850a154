// Package golden compares a test's output with a file that has the expected output.
package golden

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Compare fails the test if got differs from the content of the file. With -update it writes got to the file instead.
func Compare(t testing.TB, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; run the test with -update if it should\n%s", path, difference(got, want))
	}
}

// difference shows two short texts, or the first line in which long ones differ.
func difference(got, want []byte) string {
	const long = 30 // lines
	if max(bytes.Count(got, []byte("\n")), bytes.Count(want, []byte("\n"))) > long {
		return FirstDifference(got, want)
	}
	return fmt.Sprintf("got:\n%s\nwant:\n%s", got, want)
}

// FirstDifference shows the first line in which two texts differ.
func FirstDifference(got, want []byte) string {
	a, b := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range max(len(a), len(b)) {
		x, y := []byte("(the text ends)"), []byte("(the text ends)")
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if !bytes.Equal(x, y) {
			return fmt.Sprintf("line %d\ngot:  %s\nwant: %s", i+1, x, y)
		}
	}
	return ""
}
