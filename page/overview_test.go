package page_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/page"
)

// several serves the pages of two services, and the list of them.
func several(t *testing.T, listen string) (address string, servers map[string]*page.Server) {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	if listen == "" {
		listen = strings.TrimPrefix(server.URL, "http://")
	}
	now := time.Now()
	shop := statusAt(now.Add(-time.Hour), now, 3)
	servers = map[string]*page.Server{}
	for _, name := range []string{"shop", "video"} {
		servers[name] = page.New(page.Options{Recorded: &recorded{}, SLO: quell.SLO{Metric: quell.P95, Threshold: time.Second}, Listen: listen,
			Base: page.Base(name), TLS: listen[0] != '1', Viewers: 2})
		servers[name].Show(&fake{status: statusAt(now.Add(-time.Hour), now, 3)})
		mux.Handle(page.Base(name), servers[name].Handler())
	}
	mux.Handle("/", page.Overview(page.Options{Listen: listen, TLS: listen[0] != '1'}, func() []page.Listed {
		return []page.Listed{{Name: "shop", Status: &shop}, {Name: "video", Why: "its file has a <b>mistake</b>"}}
	}))
	return server.URL, servers
}

func read(t *testing.T, client *http.Client, request *http.Request) (status int, body string) {
	t.Helper()
	answer, err := client.Do(request)
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

func asking(t *testing.T, method, address, body string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	return request
}

// Several services have a page each, and a list. A log-in is good for one of them.
func TestPagesOfSeveralServices(t *testing.T) {
	address, servers := several(t, "")
	jar, _ := cookiejar.New(nil) // has no error without options
	client := &http.Client{Jar: jar}
	status, list := read(t, client, asking(t, "GET", address+"/", ""))
	for _, want := range []string{`<a href="/services/shop/">shop</a>`, "shop is well", "policy prima with ice: acts", "does not run: its file has a &lt;b&gt;"} {
		if status != http.StatusOK || !strings.Contains(list, want) {
			t.Errorf("%d, no %q in\n%s", status, want, list)
		}
	}
	for path, want := range map[string]int{"/services/shop/": 200, "/services/shop/page/static/app.js": 200, "/page/static/style.css": 200,
		"/services/shop/page/now?limit=5": 200, "/services/other/": 404, "/services/shop/page/none": 404} {
		if status, body := read(t, client, asking(t, "GET", address+path, "")); status != want {
			t.Errorf("%s: %d, want %d: %s", path, status, want, body)
		}
	}
	var reply struct{ Address, Ticket string }
	if err := json.Unmarshal(servers["shop"].Ticket("ann", always).Body, &reply); err != nil || reply.Address != address+"/services/shop/" {
		t.Fatalf("%+v %v", reply, err)
	}
	if status, body := read(t, client, asking(t, "POST", reply.Address+"page/login", `{"ticket": "`+reply.Ticket+`"}`)); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	for service, want := range map[string]int{"shop": 200, "video": 401} {
		if status, body := read(t, client, asking(t, "POST", address+page.Base(service)+"page/command", `{"name": "pause"}`)); status != want {
			t.Errorf("a command to %s: %d, want %d: %s", service, status, want, body)
		}
	}
	foreign := asking(t, "GET", address+"/", "")
	foreign.Host = "evil.example"
	if status, _ := read(t, client, foreign); status != http.StatusMisdirectedRequest {
		t.Errorf("a foreign name: %d", status)
	}
}

// A real Chromium shows the list: without a finding of axe-core, and as it changes. The link that has the focus keeps it.
func TestTheListInABrowser(t *testing.T) {
	need.Browser(t)
	axe := need.Axe(t)
	now := time.Now()
	var shop atomic.Pointer[controller.Status]
	status := statusAt(now.Add(-time.Hour), now, 3)
	shop.Store(&status)
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.Handle("/", page.Overview(page.Options{Listen: strings.TrimPrefix(server.URL, "http://")}, func() []page.Listed {
		return []page.Listed{{Name: markup, Why: "has a mistake"}, {Name: "shop", Status: shop.Load()}}
	}))
	b := newBrowser(t)
	for name, v := range map[string]struct {
		width int
		dark  bool
	}{"list": {1280, false}, "list-dark": {1280, true}, "list-phone": {390, false}} {
		b.size(v.width, 800, v.dark)
		b.open(server.URL)
		b.await("document.querySelectorAll('section').length == 2 && document.documentElement.scrollWidth <= innerWidth")
		b.shoot(name)
		checkAxe(t, b, axe, name)
	}
	// The change comes after the script's first look.
	b.await("performance.getEntriesByType('resource').filter((e) => e.initiatorType == 'fetch').length > 0")
	b.eval("document.querySelectorAll('section a')[1].focus()", nil)
	paused := status
	paused.Paused, paused.PausedBy = true, "ann"
	shop.Store(&paused)
	b.awaitReload("document.body.textContent.includes('ann') && document.activeElement.textContent == 'shop' && document.images.length == 0")
	if logged := b.errors(); len(logged) > 0 {
		t.Errorf("the console has errors: %q", logged)
	}
}

// On an address that other machines reach, the list has names only, and with plain HTTP nothing.
func TestTheListOffLoopback(t *testing.T) {
	address, _ := several(t, "0.0.0.0:443")
	status, list := read(t, http.DefaultClient, asking(t, "GET", address+"/", ""))
	if status != 200 || !strings.Contains(list, ">video</a>") || strings.Contains(list, "is well") || strings.Contains(list, "mistake") {
		t.Errorf("%d\n%s", status, list)
	}
	shop := func() []page.Listed { return []page.Listed{{Name: "shop"}} }
	plain := httptest.NewServer(page.Overview(page.Options{Listen: "0.0.0.0:9464"}, shop))
	defer plain.Close()
	if status, list := read(t, http.DefaultClient, asking(t, "GET", plain.URL, "")); status != 403 || strings.Contains(list, "shop") {
		t.Errorf("%d\n%s", status, list)
	}
}

// Base is a path for every name that a service may have.
func TestBase(t *testing.T) {
	for name, want := range map[string]string{"shop": "/services/shop/", "a b/c": "/services/a%20b%2Fc/"} {
		if got := page.Base(name); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
