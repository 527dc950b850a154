// Package standin stands in for AWS in tests: moto for its API, and its own for instances' metadata and the documents that AWS signs.
package standin

import (
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

// moto is one server for all tests of a test binary.
var moto struct {
	once    sync.Once
	address string
	end     func()
}

// shell runs a program until its standard input ends, so that none outlives the process that holds the other end of the pipe, however that
// one ends.
const shell = `exec 3<&0; "$@" 3<&- & pid=$!; { cat <&3 >/dev/null; kill -9 $pid; } & wait $pid`

// Moto starts it, and returns its address. Stop must be called after the tests.
func Moto(t testing.TB) string {
	t.Helper()
	program := need.Moto(t)
	moto.once.Do(func() {
		address := need.FreeAddress(t)
		host, port, _ := strings.Cut(address, ":")
		cmd := exec.Command("sh", "-c", shell, "sh", program, "-H", host, "-p", port)
		pipe, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		moto.address, moto.end = "http://"+address, func() { _ = pipe.Close(); _ = cmd.Wait() }
	})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if answer, err := http.Get(moto.address + "/moto-api/"); err == nil {
			_ = answer.Body.Close()
			return moto.address
		}
	}
	t.Fatal("moto does not answer")
	return ""
}

// Stop stops the server that tests started.
func Stop() {
	if moto.end != nil {
		moto.end()
	}
}
