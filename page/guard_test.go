package page_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/page"
)

// ask sends a request and returns the status and the text.
func (x *fixture) ask(t *testing.T, method, path, body string, change func(*http.Request)) (int, string, *http.Response) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, x.http.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text), answer
}

// Names that somebody else can point at this server, foreign origins and missing log-ins are refused.
func TestWhoIsLetIn(t *testing.T) {
	x := newFixture(t, 2)
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	header := func(name, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(name, v) } }
	for name, c := range map[string]struct {
		method, path, body string
		change             func(*http.Request)
		want               int
	}{
		"by address":              {"GET", "/", "", nil, 200},
		"as localhost":            {"GET", "/page/now", "", host("localhost:9464"), 200},
		"an address of IPv6":      {"GET", "/page/now", "", host("[::1]:9464"), 200},
		"a rebound name":          {"GET", "/page/now", "", host("evil.example.org:9464"), 421},
		"a rebound name, no port": {"GET", "/", "", host("evil.example.org"), 421},
		"nearly localhost":        {"GET", "/", "", host("localhost.evil.example.org"), 421},
		"a foreign origin":        {"POST", "/page/login", `{"ticket":"x"}`, header("Origin", "https://evil.example.org"), 403},
		"a cross-site request":    {"POST", "/page/command", `{"name":"pause"}`, header("Sec-Fetch-Site", "cross-site"), 403},
		"no log-in":               {"POST", "/page/command", `{"name":"pause"}`, nil, 401},
		"a made-up cookie":        {"POST", "/page/command", `{"name":"pause"}`, header("Cookie", "quell_1=x"), 401},
		"a made-up ticket":        {"POST", "/page/login", `{"ticket":"x"}`, nil, 401},
		"a form":                  {"POST", "/page/login", "ticket=x", header("Content-Type", "application/x-www-form-urlencoded"), 415},
		"a huge body":             {"POST", "/page/login", `{"ticket":"` + strings.Repeat("x", 1<<20) + `"}`, nil, 400},
		"another method":          {"DELETE", "/page/now", "", nil, 405},
		"an unknown instance":     {"GET", "/page/instance?id=i9", "", nil, 404},
	} {
		code, text, answer := x.ask(t, c.method, c.path, c.body, c.change)
		if code != c.want {
			t.Errorf("%s: %d, want %d: %s", name, code, c.want, text)
		}
		if policy := answer.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("%s: the policy is %q", name, policy)
		}
	}
	if len(x.fake.commands) != 0 {
		t.Errorf("commands arrived: %v", x.fake.commands)
	}
}

// A ticket is good for one log-in; the log-in acts in the holder's name, knows only the page's commands, and ends with the log-out.
func TestLogIn(t *testing.T) {
	x := newFixture(t, 2)
	var reply struct{ Ticket string }
	if err := json.Unmarshal(x.server.Ticket("ann@host", always).Body, &reply); err != nil {
		t.Fatal(err)
	}
	ticket := `{"ticket":"` + reply.Ticket + `"}`
	code, _, answer := x.ask(t, "POST", "/page/login", ticket, nil)
	if code != 200 || len(answer.Cookies()) != 1 {
		t.Fatalf("log-in: %d, cookies %v", code, answer.Cookies())
	}
	cookie := answer.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %v", cookie)
	}
	if code, _, _ := x.ask(t, "POST", "/page/login", ticket, nil); code != 401 {
		t.Errorf("the ticket's second use: %d", code)
	}
	with := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value}) }
	for body, want := range map[string]int{
		`{"name":"pause","by":"somebody else"}`:            200,
		`{"name":"authority","level":"full"}`:              400,
		`{"name":"override","instance":"i1","weight":1.5}`: 400,
		`{"name":"override","instance":"i1","unknown":1}`:  400,
		`{"name":"drain"}`:                                 400,
		`{"name":"drain","instance":"i2"}`:                 409,
	} {
		if code, text, _ := x.ask(t, "POST", "/page/command", body, with); code != want {
			t.Errorf("%s: %d, want %d: %s", body, code, want, text)
		}
	}
	gone, leave := context.WithCancel(t.Context()) // a browser that leaves at once
	leave()
	r := httptest.NewRequestWithContext(gone, "POST", x.http.URL+"/page/command", strings.NewReader(`{"name":"pause"}`))
	r.Header.Set("Content-Type", "application/json")
	with(r)
	before := len(x.fake.commands)
	x.server.Handler().ServeHTTP(httptest.NewRecorder(), r)
	if len(x.fake.commands) != before+1 || x.fake.left != nil {
		t.Errorf("after the browser has left, %d commands came, the last with %v", len(x.fake.commands)-before, x.fake.left)
	}
	if by := x.Status().PausedBy; by != "ann@host (page)" {
		t.Errorf("paused by %q", by)
	}
	if code, _, _ := x.ask(t, "POST", "/page/logout", "{}", with); code != 200 {
		t.Errorf("log-out: %d", code)
	}
	if code, _, _ := x.ask(t, "POST", "/page/command", `{"name":"pause"}`, with); code != 401 {
		t.Errorf("after the log-out: %d", code)
	}
}

// A credential that is no longer valid ends the log-ins and the tickets that were got with it.
func TestALogInEndsWithItsCredential(t *testing.T) {
	x := newFixture(t, 2)
	var valid atomic.Bool
	valid.Store(true)
	ticket := func() string {
		var reply struct{ Ticket string }
		if err := json.Unmarshal(x.server.Ticket("ann@host", func(time.Time) bool { return valid.Load() }).Body, &reply); err != nil {
			t.Fatal(err)
		}
		return `{"ticket":"` + reply.Ticket + `"}`
	}
	code, _, answer := x.ask(t, "POST", "/page/login", ticket(), nil)
	if code != 200 || len(answer.Cookies()) != 1 {
		t.Fatalf("log-in: %d, cookies %v", code, answer.Cookies())
	}
	with := func(r *http.Request) { r.AddCookie(answer.Cookies()[0]) }
	if code, text, _ := x.ask(t, "POST", "/page/command", `{"name":"pause"}`, with); code != 200 {
		t.Errorf("with a valid credential: %d %s", code, text)
	}
	unused := ticket()
	valid.Store(false)
	if code, _, _ := x.ask(t, "POST", "/page/command", `{"name":"resume"}`, with); code != 401 {
		t.Errorf("a command: %d", code)
	}
	if code, _, _ := x.ask(t, "POST", "/page/login", unused, nil); code != 401 {
		t.Errorf("a ticket: %d", code)
	}
	if _, text, _ := x.ask(t, "GET", "/page/now", "", with); strings.Contains(text, `"by":"ann`) || !x.Status().Paused {
		t.Errorf("ann is still logged in, or not paused: %s", text)
	}
}

// Where other machines can ask, the page needs TLS, and then reading needs a log-in, too.
func TestOffLoopback(t *testing.T) {
	for name, c := range map[string]struct {
		tls                bool
		root, data, ticket int
	}{"plain": {false, 403, 403, 0}, "TLS": {true, 200, 401, 1}} {
		x := newFixture(t, 2)
		server := page.New(page.Options{Recorded: &recorded{}, Listen: "0.0.0.0:9464", TLS: c.tls, SLO: quell.SLO{Metric: quell.P95}})
		server.Show(x)
		x.http.Config.Handler = server.Handler()
		root, _, _ := x.ask(t, "GET", "/", "", nil)
		data, _, _ := x.ask(t, "GET", "/page/now", "", nil)
		if reply := server.Ticket("ann", always); root != c.root || data != c.data || (reply.Error == "") != (c.ticket == 1) {
			t.Errorf("%s: page %d, data %d, ticket %q %s", name, root, data, reply.Error, reply.Body)
		}
	}
}

// Events come at once after a change; beyond the places for viewers the server says when to come again.
func TestEvents(t *testing.T) {
	x := newFixture(t, 2)
	var waiting []*http.Response
	defer func() {
		for _, w := range waiting {
			w.Body.Close()
		}
	}()
	for range viewers {
		answer, err := http.Get(x.http.URL + "/page/events")
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, answer)
		if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%s, %v", answer.Status, answer.Header)
		}
	}
	if code, _, answer := x.ask(t, "GET", "/page/events", "", nil); code != 503 || answer.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d", code)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(waiting[0].Body); scanner.Scan(); {
			if text := scanner.Text(); text != "" {
				lines <- text
			}
		}
	}()
	if first := <-lines; !strings.HasPrefix(first, "data: ") {
		t.Errorf("the first line is %q", first)
	}
	now := x.start.Add(time.Hour)
	x.decide(t, now)
	select {
	case <-lines:
	case <-time.After(patience):
		t.Error("no event for a decision")
	}
	x.end()
	for late := time.After(patience); ; {
		select {
		case _, more := <-lines:
			if !more {
				return
			}
		case <-late:
			t.Fatal("a browser is still held after the end")
		}
	}
}

// What an earlier process recorded comes before what this one sees.
func TestThePastIsThere(t *testing.T) {
	x := newFixture(t, 4)
	x.play(t)
	n := x.now(t)
	first, last := n.Points[0].At, n.Points[len(n.Points)-1].At
	if first != x.start.UnixMilli() || last != x.start.Add(time.Hour).UnixMilli() {
		t.Errorf("from %v to %v", time.UnixMilli(first), time.UnixMilli(last))
	}
	if len(n.Marks) != 4 || n.Marks[0].Kind != page.Event || n.Marks[1].Kind != page.Change {
		t.Errorf("marks %+v", n.Marks)
	}
}
