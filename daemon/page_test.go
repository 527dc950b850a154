package daemon_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The controller serves its page. Its address from `quell page` logs the operator in, whose pause is in force and in the journal.
func TestPage(t *testing.T) {
	r := newRig(t, "policy: {name: static}\n"+
		"probe: {capacity: 40Mbps}\nscaler: {kind: fixed, instances: [{id: i1, address: \"127.0.0.1:9\"}]}\n")
	r.start("controller")
	var printed []byte
	r.awaitFor(time.Minute, "the address of the page", func() (bool, any) {
		var err error
		printed, err = exec.Command(quellProgram, "page", "--config", r.config).Output()
		return err == nil, err
	})
	address, ticket, ok := strings.Cut(strings.TrimSpace(string(printed)), "#ticket=")
	if !ok || address != "http://"+r.metrics+"/" {
		t.Fatalf("quell page printed %q", printed)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: time.Minute}
	post := func(path, body string) (int, string) {
		t.Helper()
		answer, err := client.Post(address+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	if code, text := post("page/command", `{"name":"pause"}`); code != http.StatusUnauthorized {
		t.Errorf("a pause without a log-in: %d %s", code, text)
	}
	if code, text := post("page/login", fmt.Sprintf(`{"ticket":%q}`, ticket)); code != http.StatusOK {
		t.Fatalf("the log-in: %d %s", code, text)
	}
	r.awaitFor(time.Minute, "the pause", func() (bool, any) { // until the controller has the lease
		code, text := post("page/command", `{"name":"pause"}`)
		return code == http.StatusOK, text
	})
	answer, err := client.Get(address + "page/journal?" + url.Values{"find": {"PAUSED by operator"}}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(text), "(page)") {
		t.Errorf("the journal has %s, %v", text, err)
	}
}
