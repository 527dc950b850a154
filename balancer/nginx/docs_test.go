package nginx

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/balancer/nginx/accesslog"
	"github.com/quellhq/quell/internal/need"
)

// TestDocumentedConfigurations lets nginx check the configurations in the documentation and in the examples, and checks that they log what
// Quell reads.
func TestDocumentedConfigurations(t *testing.T) {
	t.Parallel()
	program := need.Program(t, "nginx")
	page, err := os.ReadFile("../../docs/balancers/nginx.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "```nginx\n")
	block, _, ended := strings.Cut(block, "```")
	example, err := os.ReadFile("../../examples/nginx/nginx.conf")
	servers, missing := os.ReadFile("../../examples/nginx/shop.conf")
	if err != nil || missing != nil || !found || !ended {
		t.Fatalf("no configuration in the page, or none in the example: %v %v", err, missing)
	}
	for name, text := range map[string]string{"page": "events {}\n" + block, "example": string(example)} {
		if !strings.Contains(text, accesslog.Format) {
			t.Errorf("%s: its log_format is not the one that Quell reads", name)
		}
		dir := t.TempDir()
		text = strings.NewReplacer("/etc/nginx/quell", dir, "/var/log/nginx", dir, "/run/quell", dir,
			"listen 80;", "listen "+need.FreeAddress(t)+";").Replace(text)
		path := filepath.Join(dir, "nginx.conf")
		for path, text := range map[string]string{path: "pid " + dir + "/pid;\n" + text, filepath.Join(dir, "shop.conf"): string(servers)} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command(program, "-t", "-c", path, "-e", filepath.Join(dir, "error.log")).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
