package haproxy

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/quellhq/quell/internal/need"
)

// TestDocumentedConfigurations lets HAProxy check the configurations in the documentation and in the examples.
func TestDocumentedConfigurations(t *testing.T) {
	program := need.Program(t, "haproxy")
	page, err := os.ReadFile("../../docs/balancers/haproxy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "```haproxy\n")
	block, _, ended := strings.Cut(block, "```")
	example, err := os.ReadFile("../../examples/haproxy/haproxy.cfg")
	if err != nil || !found || !ended {
		t.Fatalf("no configuration in the page, or none in the example: %v", err)
	}
	for name, text := range map[string]string{"page": block, "example": string(example)} {
		path := filepath.Join(t.TempDir(), "haproxy.cfg")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(program, "-c", "-f", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestSocketsThatCannotBeOpened checks the message of a permission error directly, because root may open every
// socket.
func TestSocketsThatCannotBeOpened(t *testing.T) {
	s := newSocket("/run/haproxy.sock")
	for err, want := range map[error]string{
		fs.ErrPermission: "give `stats socket` a user, group or mode", syscall.EACCES: "may not open the socket",
		syscall.ENOENT: "level admin", syscall.ECONNREFUSED: "start HAProxy again",
	} {
		if got := s.explain(err).Error(); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// TestDocumentedFormats reads every log-format in the documentation. The short format and httplog, which may be followed by anything, are
// read without being configured, too.
func TestDocumentedFormats(t *testing.T) {
	page, err := os.ReadFile("../../docs/balancers/haproxy.md")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`(?m)^ +(?:- ')?(log-format .*?|\{"fe.*?)'?$`).FindAllStringSubmatch(string(page), -1)
	if len(known) != 5 {
		t.Errorf("%d formats in the page", len(known))
	}
	for _, m := range known {
		if _, err := parseFormat(m[1]); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
}
