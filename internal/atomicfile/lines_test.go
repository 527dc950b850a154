package atomicfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWholeLines(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for text, want := range map[string]string{"": "", "a\n": "a\n", "a": "", "a\nb": "a\n", "a\n\n": "a\n\n", long: "", "a\n" + long: "a\n",
		long + "\nb": long + "\n"} {
		path := filepath.Join(t.TempDir(), "lines")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		size, err := WholeLines(file)
		file.Close()
		if left, _ := os.ReadFile(path); err != nil || size != int64(len(want)) || string(left) != want {
			t.Errorf("%.5q, %d bytes: %d bytes are left, said %d, %v; want %d", text, len(text), len(left), size, err, len(want))
		}
	}
}
