package page_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/page"
)

// A real Chromium shows the page: live, with names as data, usable by keyboard and screen reader, and with commands after a log-in only.
func TestPageInABrowser(t *testing.T) {
	need.Browser(t)
	axe := need.Axe(t)
	x := newFixture(t, 4)
	x.play(t)
	b := newBrowser(t)
	b.midday()
	b.size(1280, 1400, false)
	b.open(x.http.URL)
	b.await("document.querySelectorAll('#rows tr').length == 5 && document.querySelectorAll('.uplot canvas').length == 2")
	b.await("document.querySelectorAll('#heat canvas').length == 2 && document.querySelectorAll('#strip button').length == 4")
	var title, first string
	b.eval("document.title", &title)
	b.eval("document.querySelector('#rows tr').dataset.id", &first)
	if title != "shop: well – Quell" || first != "i3" {
		t.Errorf("title %q; the first row is of %s", title, first)
	}
	var names, images int
	b.eval("[...document.querySelectorAll('#rows button')].filter((x) => x.textContent === "+quoted(markup)+").length", &names)
	b.eval("document.images.length", &images)
	if names != 1 || images != 0 {
		t.Errorf("%d rows show the name that looks like markup, and there are %d images", names, images)
	}
	for name, v := range map[string]struct {
		width int
		dark  bool
	}{"desktop": {1280, false}, "dark": {1280, true}, "phone": {390, false}} {
		b.size(v.width, 1400, v.dark)
		b.await("document.querySelector('.uplot').clientWidth <= innerWidth && document.documentElement.scrollWidth <= innerWidth")
		b.shoot(name)
		checkAxe(t, b, axe, name)
	}
	b.size(1280, 1400, false)
	noisy(t, b)
	more(t, b)
	live(t, b, x)
	story(t, b, axe)
	over(t, b, x)
	commands(t, b, x)
	if logged := b.errors(); len(logged) > 0 {
		t.Errorf("the console has errors: %q", logged)
	}
}

// A moment of another day is told with its date, both in the reader's time zone; the hour after midnight is 00.
func TestTimesOfAnotherDay(t *testing.T) {
	need.Browser(t)
	x := newFixture(t, 1)
	b := newBrowser(t)
	b.zone("Asia/Tokyo")
	b.open(x.http.URL)
	var told string
	b.eval("import('/page/static/dom.js').then((m) => m.time('2026-03-01T15:05:09Z'))", &told)
	if told != "2026-03-02 00:05:09" {
		t.Errorf("five past midnight in Tokyo is told as %q", told)
	}
}

func quoted(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}

// checkAxe fails for every finding of axe-core that is serious or critical.
func checkAxe(t *testing.T, b *browser, axe, what string) {
	t.Helper()
	b.eval(axe+"; undefined", nil)
	var found []struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML, FailureSummary string }
	}
	b.eval("axe.run().then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)))", &found)
	for _, f := range found {
		t.Errorf("%s: %s (%s): %s: %+v", what, f.ID, f.Impact, f.Help, f.Nodes)
	}
}

// noisy: the first box names the machine that neighbours slow, by what, since when, what is done, and what a person can do.
func noisy(t *testing.T, b *browser) {
	var lines []string
	b.eval("[...document.querySelectorAll('#noisy li')].map((x) => x.textContent)", &lines)
	want := regexp.MustCompile(`^i3: neighbours use about 7% of its network, since \d\d:\d\d:\d\d \(20 min\)\.` +
		`Its response time is .* ms; the others' median is .* ms\. A fast policy leaves it 40% of its weight\. It got 20\.0% of the requests\. ` +
		`Look at what else uses the network of its host\.`)
	if len(lines) != 1 || !want.MatchString(lines[0]) {
		t.Errorf("noisy: %q", lines)
	}
	var top int
	b.eval("Math.round(document.querySelector('#noisy li').getBoundingClientRect().bottom)", &top)
	if top > 250 {
		t.Errorf("the noisy machine is named down to %d pixels, not in the first of a screen", top)
	}
	b.eval("document.querySelector('#noisy button').click()", nil)
	b.await("document.querySelector('#story').open && document.querySelector('#story-title').textContent === 'i3'")
	b.eval("document.querySelector('#story button').click()", nil)
}

// more: what a fast policy does, the tenants of machines, and the credits of burstable instances, those that run out first.
func more(t *testing.T, b *browser) {
	for selector, want := range map[string]string{
		"#fast": "Fast policy ice|i3 gets 40% of its share|i3, cut: its share is cut to 40%",
		"#tenants": "Tenants of machines|i1: divided by acs, 1.93 of 2 processors in use, 2.1% stolen by other machines: slowdowns of 2 groups " +
			"differ by a factor of 1.54: caps change|i1: group cache: it is gone|" +
			"i1;db;2.00;0.73;1.40;48%;weight 2.00, cap 1.50;more;slowdown 2.00 (from scheduling): weight 2.00, expected slowdown 1.64|" +
			"i1;" + markup + ";1.30;1.20;1.50;20%;weight 0.60;less;slowdown 1.30 (from scheduling): weight 0.60, expected slowdown 1.61|" +
			"i1;cron;idle;0.00;–;–;none;its share;|and 2 more, which are slowed down less",
		"#credits": "Credits|i2, cpu: 12.5 left (12.0 to 13.0), gone in 10 min at this use|" + markup + ", cpu: 30.0 left, they last at this use",
	} {
		var lines []string
		b.eval("[...document.querySelectorAll('"+selector+" h2, "+selector+" li, "+selector+" tbody tr, "+selector+" p')].map((x) => "+
			"x.localName === 'tr' ? [...x.children].map((y) => y.textContent).join(';') : x.textContent)", &lines)
		if got := strings.Join(lines, "|"); got != want {
			t.Errorf("%s says %q, want %q", selector, got, want)
		}
	}
}

// live: a new status and a new decision appear without a reload, and open elements stay open.
func live(t *testing.T, b *browser, x *fixture) {
	b.eval("document.querySelector('#journal details').open = true, document.querySelector('#find').focus()", nil)
	now := x.start.Add(time.Hour + time.Minute)
	x.set(func(s *controller.Status) {
		*s = statusAt(x.start, now, 4)
		s.Instances[1].LatencyMS = at(140)
	})
	b.await("document.title.startsWith('shop: missed') && document.querySelector('#headline').textContent.includes('MISSES')")
	x.decide(t, now)
	b.await("document.querySelectorAll('#journal details').length == 5 && document.querySelectorAll('#journal details[open]').length == 1")
	b.await("document.activeElement.id === 'find'")
	b.eval("document.querySelector('#strip button:last-child').click()", nil)
	b.await("document.querySelector('#journal details:first-child').open")
	b.eval("document.querySelector('#text').value = 'OLD event', document.querySelector('#search').requestSubmit()", nil)
	b.await("document.querySelector('#found').textContent === '1 found' && document.querySelectorAll('#journal details').length == 1")
	b.eval("document.querySelector('#live').click()", nil)
	b.await("document.querySelectorAll('#journal details').length == 5")
}

// over: when the neighbours are gone, the first box says since when.
func over(t *testing.T, b *browser, x *fixture) {
	now := x.start.Add(time.Hour + 2*time.Minute)
	x.set(func(s *controller.Status) {
		*s = statusAt(x.start, now, 4)
		s.Reasons, s.Instances[2].Interference = s.Reasons[:1], nil
	})
	b.await(`!document.querySelector('#noisy li') && /^i3: over since \d\d:\d\d:\d\d, after 22 min\. Last seen: neighbours use about \d+% of its network\.$/` +
		`.test(document.querySelector('#over').textContent)`)
	b.shoot("over")
}

func story(t *testing.T, b *browser, axe string) {
	b.eval("[...document.querySelectorAll('#rows button')].find((x) => x.textContent === 'i3').click()", nil)
	b.await("document.querySelector('#story').open && document.querySelector('#story').textContent.includes('neighbours on network')")
	checkAxe(t, b, axe, "story")
	b.shoot("story")
	var buttons string
	b.eval("document.querySelector('#story').innerText", &buttons)
	if strings.Contains(buttons, "Set share") || !strings.Contains(buttons, "quell page") {
		t.Errorf("without a log-in the story says:\n%s", buttons)
	}
	b.eval("document.querySelector('#story button').click()", nil)
}

func commands(t *testing.T, b *browser, x *fixture) {
	var reply struct{ Address, Ticket string }
	if err := json.Unmarshal(x.server.Ticket("operator@host", always).Body, &reply); err != nil {
		t.Fatal(err)
	}
	b.open(reply.Address + "#ticket=" + reply.Ticket)
	b.await("document.querySelector('#by').textContent.includes('operator@host') && !location.hash")
	b.eval("document.querySelector('#pause').click()", nil)
	b.await("document.querySelector('#confirm').open && document.activeElement.id === 'no'")
	b.eval("document.querySelector('#yes').click()", nil)
	b.await("!document.querySelector('#confirm').open && !document.querySelector('#resume').hidden")
	b.await("document.querySelector('#acting').textContent.includes('paused by operator@host')")
	b.eval("[...document.querySelectorAll('#rows button')].find((x) => x.textContent === 'i2').click()", nil)
	b.await("document.querySelector('#story').open")
	b.eval("[...document.querySelectorAll('#story button')].find((x) => x.textContent === 'Drain').click()", nil)
	b.await("document.querySelector('#confirm').open")
	b.eval("document.querySelector('#yes').click()", nil)
	b.await("document.querySelector('#confirm-error').textContent === 'i2 is the last one'")
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.fake.commands) != 2 || x.fake.commands[0].Name != bus.Pause || x.fake.commands[1].Name != bus.Drain {
		t.Errorf("the controller was told %+v", x.fake.commands)
	}
}

// Lists are short, and have what matters most.
func TestListsAreBounded(t *testing.T) {
	x := newFixture(t, 1)
	x.set(func(s *controller.Status) {
		*s = controller.Status{Service: "shop", Fast: "outlier"}
		for i := range 50 {
			s.Instances = append(s.Instances, controller.InstanceStatus{ID: fmt.Sprintf("i%d", i), State: quell.Ready,
				Cut: at(1 - float64(i)/100), Credits: quell.Balances{quell.CPU: {Left: 5, DepletedS: at(1000 - float64(i))}, quell.Disk: {Left: 1}}})
		}
	})
	g := x.now(t).Group
	if len(g.Credits) != 20 || g.Credits[0].ID != "i49" || g.Credits[0].Resource != quell.CPU || *g.Credits[0].GoneS != 951 {
		t.Errorf("%d balances, the first one is %+v", len(g.Credits), g.Credits[0])
	}
	x.set(func(s *controller.Status) {
		for i := range s.Instances {
			s.Instances[i].Tenancy = &quell.Tenancy{Policy: "acs", Why: strings.Repeat("y", 5000), More: 1,
				Tenants: make([]quell.TenantState, quell.MostTenants)}
		}
		s.Instances[40].Tenancy.Tenants[3] = quell.TenantState{Name: "slow", Slowdown: at(3)}
		s.Paused, s.PausedBy = true, "ann"
	})
	if g := x.now(t).Group; len(g.Tenants) != 20 || g.Tenants[0].ID != "i40" || g.Tenants[0].Name != "slow" || len(g.Divided) > 20 ||
		len(g.Divided[0].Why) > 2100 || g.MoreTenants != 50*(quell.MostTenants+1)-20 {
		t.Errorf("%d tenants of %d machines, %d more", len(g.Tenants), len(g.Divided), g.MoreTenants)
	}
	if f := g.Fast; f == nil || f.Policy != "outlier" || len(f.Cuts) != 20 || f.Cuts[0] != (page.Cut{ID: "i49", Left: 0.51}) {
		t.Errorf("cuts %+v", f)
	}
	x.set(func(s *controller.Status) {
		for _, in := range s.Instances {
			s.Reasons = append(s.Reasons, quell.Reason{Code: "interference", Instance: in.ID, Text: strings.Repeat("x", 5000)})
		}
		s.PausedBy, s.Lost = "bob", "all"
	})
	if g := x.now(t).Group; len(g.Noisy) != 5 || g.MoreNoisy != 45 || len(g.Noisy[0].What) > 2100 {
		t.Errorf("%d noisy, %d more", len(g.Noisy), g.MoreNoisy)
	}
	x = newFixture(t, 1)
	x.set(func(s *controller.Status) { *s = controller.Status{Service: "shop"} })
	n := x.now(t)
	if g := n.Group; g.Fast != nil || len(g.Credits)+len(g.Noisy)+len(g.Tenants) > 0 {
		t.Errorf("without any: %+v", g)
	}
	if n.Points == nil || n.Marks == nil {
		t.Error("before the first decision points and marks are null: browsers expect lists")
	}
}

// Without JavaScript the page says where the command line is.
func TestPageWithoutJavaScript(t *testing.T) {
	text, err := os.ReadFile("files/index.html")
	if err != nil {
		t.Fatal(err)
	}
	_, said, _ := strings.Cut(string(text), "<noscript>")
	if said, _, _ = strings.Cut(said, "</noscript>"); !strings.Contains(said, "quell status") || !strings.Contains(said, "quell journal") {
		t.Errorf("it says %q", said)
	}
}

// A thousand instances come in pages of 50, and a search finds one.
func TestAThousandInstances(t *testing.T) {
	need.Browser(t)
	x := newFixture(t, 1000)
	x.set(func(s *controller.Status) { *s = statusAt(x.start, x.start.Add(time.Hour), 1000) })
	x.awaitPoint(t, x.start.Add(time.Hour))
	b := newBrowser(t)
	b.open(x.http.URL)
	b.await("document.querySelectorAll('#rows tr').length == 50")
	b.await("document.querySelector('#shown').textContent.startsWith('1 to 50 of 1000')")
	b.eval("document.querySelector('#later').click()", nil)
	b.await("document.querySelector('#shown').textContent.startsWith('51 to 100 of 1000')")
	b.eval("document.querySelector('#find').value = 'i777', document.querySelector('#find').dispatchEvent(new Event('input'))", nil)
	b.await("document.querySelectorAll('#rows tr').length == 1 && document.querySelector('#rows button').textContent === 'i777'")
}

// TestAnswersAreKeptForAllViewers: an answer that is kept is given for the same question about the same state only.
func TestAnswersAreKeptForAllViewers(t *testing.T) {
	x := newFixture(t, 3)
	x.play(t)
	const question = "/page/now?limit=50"
	body := func(path string) string {
		t.Helper()
		_, text, _ := x.ask(t, http.MethodGet, path, "", nil)
		return text
	}
	first := body(question)
	if one := body("/page/now?limit=1"); len(one) >= len(first) {
		t.Errorf("one row has %d bytes, three have %d", len(one), len(first))
	}
	x.set(func(s *controller.Status) { s.Paused, s.PausedBy = true, "ann" })
	if next := x.now(t); !next.Group.Paused {
		t.Error("an old answer was given after a pause")
	}
	for i := range 200 { // more questions than are kept
		body(fmt.Sprintf("%s&find=%d", question, i))
	}
	x.set(func(s *controller.Status) { s.Paused = false })
	if x.now(t).Group.Paused {
		t.Error("an old answer was given after the end of the pause")
	}
}
