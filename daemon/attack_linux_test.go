package daemon_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// bomb is an encoded histogram of 52 bytes that asks for 49 MB of counters.
const bomb = "HISTFAAAAB54nJJpmSzMgACsUJqx/j8E2H+ACAACAAD//5XnCfQ="

// peakMemory returns the peak memory of a process, in bytes.
func peakMemory(t *testing.T, p *proc) int {
	t.Helper()
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kb, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("the kernel does not tell")
	return 0
}

// An attacker sends huge histograms, large readings from ever new senders, and readings of unknown instances. The controller keeps its
// lease, continues to decide, and uses little memory.
func TestAFloodOfReadings(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.write(plain("127.0.0.1:9", need.FreeAddress(t), "static"))
	listen := fmt.Sprintf("bus: {listen: %q", r.bus)
	replaceIn(t, r.config, listen, listen+", token: shown by everybody")
	running := r.start("controller")
	r.start("balancer")
	r.awaitStatus("a decision", func(s controller.Status) bool { return s.Leading && !s.At.IsZero() })
	before := peakMemory(t, running)

	nc, err := nats.Connect("nats://"+r.bus, nats.Token("shown by everybody"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	padding := base64.StdEncoding.EncodeToString(make([]byte, 150<<10))
	send := func(instance, sender, histogram string) {
		text := fmt.Sprintf(`{"service":"shop","instance":%q,"source":"balancer","sender":%q,"observation":{"at":"2026-01-01T00:00:00Z"},"latency_hdr":%q}`,
			instance, sender, base64.StdEncoding.EncodeToString([]byte(histogram)))
		if err := nc.Publish("quell.shop.reading.balancer."+instance, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for i := range 5000 {
		send("i1", fmt.Sprint("s", i), bomb)
	}
	for i := range 300 {
		send("i1", fmt.Sprint("s", i), bomb[:48]+padding)
		send(fmt.Sprint("ghost", i), "s", padding)
	}
	if err := nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	flooded := time.Now()
	s := r.awaitStatus("a decision after the flood", func(s controller.Status) bool { return s.At.After(flooded) })
	late := time.Since(flooded)
	if !s.Leading || strings.Contains(running.said(), "leading=false") {
		t.Errorf("the lease was lost: it said\n%s", running.said())
	}
	if s.Rejected < 5000 {
		t.Errorf("%d readings were refused", s.Rejected)
	}
	grown := peakMemory(t, running) - before
	t.Logf("%d MB in %s; a decision %s after it; %d MB more memory at the peak; %d readings refused", nc.Stats().OutBytes>>20,
		flooded.Sub(began), late, grown>>20, s.Rejected)
	if grown > 300<<20 {
		t.Errorf("the controller grew by %d MB", grown>>20)
	}
}

// With a stolen credential of an agent an attacker can send only that agent's readings.
func TestAStolenCredential(t *testing.T) {
	t.Parallel()
	r := plainService(t)
	r.start("agent")
	r.awaitServing("i1")
	nc := r.raw(auth.Sensor, "i1")
	entries := len(r.journal(r.connect()))

	for _, subject := range []string{"quell.shop.command", "quell.shop.command.operator.operator", "quell.shop.command.controller.controller",
		"quell.shop.command.sensor.i1"} {
		for _, command := range []string{`{"name":"pause","by":"root"}`, `{"name":"override","instance":"i1","weight":0,"by":"root"}`} {
			if m, err := nc.Request(subject, []byte(command), 200*time.Millisecond); err == nil {
				t.Errorf("%s on %s was answered: %s", command, subject, m.Data)
			}
		}
	}
	reading := `{"service":"shop","instance":"%s","source":"agent","sender":"%s","observation":{"at":"2026-01-01T00:00:00Z","utilization":{"network":1}}}`
	if err := nc.Publish("quell.shop.reading.agent.i2", fmt.Appendf(nil, reading, "i2", "i2")); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"quell_plans_shop", "quell_snapshots_shop", "KV_quell_lease", "KV_quell_state_shop"} {
		if err := js.DeleteStream(t.Context(), name); err == nil {
			t.Errorf("%s was deleted", name)
		}
		if s, err := js.Stream(t.Context(), name); err == nil {
			t.Errorf("%s can be reached: purging it gives %v", name, s.Purge(t.Context()))
		}
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "mine", Subjects: []string{"mine.>"}}); err == nil {
		t.Error("it may fill the disk")
	}
	if _, err := js.Publish(t.Context(), "quell.shop.journal.plans", make([]byte, 500<<10)); err == nil {
		t.Error("it may write to the journal")
	}
	if _, err := nats.Connect("nats://" + r.bus); err == nil {
		t.Error("who shows nothing is let in")
	}

	s := r.awaitStatus("further decisions", func(s controller.Status) bool { return s.Leading })
	if s.Paused || len(s.Overrides) > 0 || s.Rejected > 0 {
		t.Errorf("%+v", s)
	}
	if now := len(r.journal(r.connect())); now < entries {
		t.Errorf("the journal had %d entries and has %d", entries, now)
	}
	out, status := r.quell("pause", "--config", r.config) // the operator's own, found in data
	host, _ := os.Hostname()
	if status != 0 || !has(out, "paused by operator@"+host) {
		t.Errorf("pause: %d, %s", status, out)
	}
	if s := r.awaitStatus("a pause", func(s controller.Status) bool { return s.Paused }); s.PausedBy != "operator@"+host {
		t.Errorf("paused by %q", s.PausedBy)
	}
	var kept []bus.Entry
	for _, e := range r.journal(r.connect()) {
		if e.Kind == bus.EventEntry && has(e.Text, "paused by operator@"+host) {
			kept = append(kept, e)
		}
	}
	if len(kept) != 1 {
		t.Errorf("the journal says %v", kept)
	}
}

// A log-in to the page ends when the credential is revoked with which it was got, and so does an address that was not used yet.
func TestARevokedOperatorIsLoggedOut(t *testing.T) {
	t.Parallel()
	r := plainService(t)
	r.awaitStatus("a decision", func(s controller.Status) bool { return s.Leading && !s.At.IsZero() })
	if out, status := r.quell("credentials", "operator", "anna", "--config", r.config, "--out", r.dir+"/anna.creds"); status != 0 {
		t.Fatalf("%d, %s", status, out)
	}
	replaceIn(t, r.config, "bus: {", "bus: {credentials: anna.creds, ")
	jar, _ := cookiejar.New(nil) // has no error without options
	client := &http.Client{Jar: jar, Timeout: patience}
	post := func(path, body string) int {
		t.Helper()
		answer, err := client.Post("http://"+r.metrics+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	login := func() string {
		t.Helper()
		out, status := r.quell("page", "--config", r.config)
		_, ticket, ok := strings.Cut(strings.TrimSpace(out), "#ticket=")
		if status != 0 || !ok {
			t.Fatalf("%d, %s", status, out)
		}
		return fmt.Sprintf(`{"ticket":%q}`, ticket)
	}
	first, unused := login(), login()
	if code := post("/page/login", first); code != http.StatusOK {
		t.Fatalf("the log-in: %d", code)
	}
	if code := post("/page/command", `{"name":"pause"}`); code != http.StatusOK {
		t.Fatalf("a pause: %d", code)
	}
	if out, status := r.quell("credentials", "revoke", "operator", "anna", "--config", r.config); status != 0 {
		t.Fatalf("revoke: %d, %s", status, out)
	}
	r.await("the end of the log-in", func() (bool, any) {
		code := post("/page/command", `{"name":"resume"}`)
		return code == http.StatusUnauthorized, code
	})
	if code := post("/page/login", unused); code != http.StatusUnauthorized {
		t.Errorf("an address that was not used: %d", code)
	}
}

// Actions with a person's own credential are recorded with its name, and it no longer works when it is revoked.
func TestNamedOperators(t *testing.T) {
	t.Parallel()
	r := plainService(t)
	r.awaitStatus("a decision", func(s controller.Status) bool { return s.Leading && !s.At.IsZero() })
	file := r.dir + "/anna.creds"
	if out, status := r.quell("credentials", "operator", "anna", "--config", r.config, "--out", file); status != 0 {
		t.Fatalf("%d, %s", status, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	replaceIn(t, r.config, "bus: {", "bus: {credentials: anna.creds, ")
	out, status := r.quell("pause", "--config", r.config)
	if status != 0 || !has(out, "paused by anna@") {
		t.Errorf("pause: %d, %s", status, out)
	}
	out, status = r.quell("journal", "--config", r.config)
	if status != 0 || !has(out, "paused by anna@") {
		t.Errorf("journal: %d, %s", status, out)
	}
	if out, status = r.quell("credentials", "revoke", "operator", "anna", "--config", r.config); status != 0 || !has(out, "operator anna") {
		t.Errorf("revoke: %d, %s", status, out)
	}
	out, status = r.quell("resume", "--config", r.config)
	if status != 2 || !has(out, "refused the credential of operator anna", "quell credentials operator anna") {
		t.Errorf("resume: %d, %s", status, out)
	}
	if out, status = r.quell("credentials", "list", "--config", r.config); status != 0 || !has(out, "anna", "revoked") {
		t.Errorf("list: %d, %s", status, out)
	}
}
