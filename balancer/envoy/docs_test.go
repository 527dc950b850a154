package envoy

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/quellhq/quell/internal/need"
)

// TestTheExample lets Envoy check the configuration of the example.
func TestTheExample(t *testing.T) {
	if out, err := exec.Command(need.Envoy(t), "--mode", "validate", "-c", "../../examples/envoy/envoy.yaml").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestThePanicThreshold looks for the line without which Envoy sends requests to ill instances when most are ill, in the example and on the
// page.
func TestThePanicThreshold(t *testing.T) {
	const line = "    common_lb_config: {healthy_panic_threshold: {value: 1}}"
	for _, path := range []string{"../../examples/envoy/envoy.yaml", "../../docs/balancers/envoy.md"} {
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), line) {
			t.Errorf("%s has no panic threshold of 1%%: %v", path, err)
		}
	}
}
