package envoy

import (
	"os/exec"
	"testing"

	"github.com/quellhq/quell/internal/need"
)

// TestTheExample lets Envoy check the configuration of the example.
func TestTheExample(t *testing.T) {
	if out, err := exec.Command(need.Envoy(t), "--mode", "validate", "-c", "../../examples/envoy/envoy.yaml").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
