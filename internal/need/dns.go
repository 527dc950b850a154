package need

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// DNS returns the address of a DNS server, and a function that starts it with other records, as in the configuration of dnsmasq. The
// domain is test. Nothing answers until the first call, and for a moment after each call.
func DNS(t testing.TB) (address string, change func(records string)) {
	t.Helper()
	path := Program(t, "dnsmasq")
	address = FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	config := filepath.Join(t.TempDir(), "dnsmasq.conf")
	var running *exec.Cmd
	end := func() {
		if running != nil {
			_ = running.Process.Kill()
			_ = running.Wait()
		}
	}
	t.Cleanup(end)
	return address, func(records string) {
		t.Helper()
		end()
		text := fmt.Sprintf("port=%s\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\nuser=root\nlocal=/test/\n%s", port, records)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		running = exec.Command(path, "--keep-in-foreground", "--conf-file="+config, "--pid-file")
		if err := running.Start(); err != nil {
			t.Fatal(err)
		}
	}
}
