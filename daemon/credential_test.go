package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
)

// A process whose credential belongs to another process, or to none, does not start. It says whose the credential is and what to do.
func TestACredentialOfAnother(t *testing.T) {
	dir := t.TempDir()
	ring := auth.Keyring{Dir: filepath.Join(dir, "credentials")}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "quell.yaml")
	config := "service: shop\nslo: {metric: mean, threshold: 75ms}\nagent: {instance: web-1}\n" +
		"probe: {listen: \"127.0.0.1:0\", capacity: 1Gbps}\nbus: {url: \"nats://127.0.0.1:1\", credentials: own.creds}\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		of   auth.Grant
		want string
	}{
		{auth.Grant{Role: auth.Sensor, Service: "shop", ID: "web-2"}, "it is for the agent of web-2, and this is the agent of web-1"},
		{auth.Grant{Role: auth.Sensor, Service: "video", ID: "web-1"}, `it is for the service "video", and this is the service "shop"`},
		{auth.Grant{Role: auth.Balancer, Service: "shop", ID: "web-1"}, "it is for the balancer web-1, and this is a process of role sensor"},
		{auth.Grant{}, "it is no credential"},
	} {
		text := []byte("garbage")
		if tc.of.ID != "" {
			var err error
			if text, err = ring.Issue(tc.of, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "own.creds"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		err := Agent(t.Context(), path, "", nil, slog.New(slog.DiscardHandler))
		var mistake *quell.UserError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), tc.want) ||
			!strings.Contains(err.Error(), "quell credentials sensor web-1") {
			t.Errorf("%v: %v", tc.of, err)
		}
	}
}
