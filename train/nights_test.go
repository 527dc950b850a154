package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/model"
)

// Rows are appended as whole lines, also after a process that was killed while it wrote.
func TestRowsOfNights(t *testing.T) {
	dir := t.TempDir()
	keep, path := KeepNights(dir), filepath.Join(dir, nightsFile)
	row := []model.TrainingRow{{Resource: "network", Utilization: 0.3, RequestRate: 30}}
	for _, left := range []string{"", `{"resource":"netw`} {
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(left); err != nil {
			t.Fatal(err)
		}
		file.Close()
		if err := keep(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := keep(nil); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(path)
	if lines := strings.Split(strings.TrimSpace(string(data)), "\n"); err != nil || len(lines) != 2 || lines[0] != lines[1] {
		t.Errorf("%v:\n%s", err, data)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte("\n"), mostNights-1); err != nil { // the file is sparse
		t.Fatal(err)
	}
	if err := keep(row); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("a full file: %v", err)
	}
	if err := KeepNights(filepath.Join(dir, "none"))(row); err == nil {
		t.Error("a missing folder is no error")
	}
}
