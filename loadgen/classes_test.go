package loadgen

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func shop() []Class {
	return []Class{
		{Name: "home", Share: 3, CPU: 2 * time.Millisecond, Network: 4000},
		{Name: "search", Share: 1, CPU: 500 * time.Microsecond, Disk: 2, Memory: 300 * time.Microsecond},
	}
}

func mix(t interface{ Fatal(...any) }, classes []Class, exponential bool, seed uint64) *Mix {
	m, err := NewMix(classes, exponential, seed)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMixHasItsSharesAndSizes(t *testing.T) {
	const n = 50_000
	m, again := mix(t, shop(), true, 4), mix(t, shop(), true, 4)
	homes, sizes := 0.0, 0.0
	for range n {
		class, size := m.Draw(0)
		if c, s := again.Draw(0); c != class || s != size {
			t.Fatal("the same seed gave other requests")
		}
		if class == 0 {
			homes++
		}
		sizes += size
	}
	if bound := 4 * math.Sqrt(0.75*0.25/n); math.Abs(homes/n-0.75) > bound {
		t.Errorf("%.4f of the requests are of the first class, want 0.75 within %.4f", homes/n, bound)
	}
	if bound := 4 / math.Sqrt(n); math.Abs(sizes/n-1) > bound {
		t.Errorf("the mean factor is %.4f, want 1 within %.4f", sizes/n, bound)
	}
	if _, size := mix(t, shop(), false, 4).Draw(0); size != 1 {
		t.Errorf("without a spread the factor is %v", size)
	}
}

// A request's query has exactly the drawn demands, in plain ASCII.
func TestWorkRequestsSayTheirDemands(t *testing.T) {
	fixed := mix(t, shop(), false, 1).Visits("")
	seen := map[string]bool{}
	for range 50 {
		visit := fixed(time.Second)
		q, ok := visit.Next(time.Second)
		if _, again := visit.Next(2 * time.Second); !ok || again || q.At != time.Second {
			t.Fatalf("a visit of other than one request: %+v", q)
		}
		seen[fmt.Sprint(q.Path, " ", q.Bytes)] = true
	}
	if len(seen) != 2 || !seen["/work?class=home&cpu=2000us&bytes=4000 4000"] || !seen["/work?class=search&cpu=500us&disk=2&memory=300us 0"] {
		t.Errorf("got %v", seen)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := Class{
			Name: "c", Share: 1, CPU: time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "cpu")), Disk: rapid.Float64Range(0, 50).Draw(t, "disk"),
			Network: rapid.Int64Range(0, 1e6).Draw(t, "network"),
		}
		seed := rapid.Uint64().Draw(t, "seed")
		_, size := mix(t, []Class{c}, true, seed).Draw(0)
		q, _ := mix(t, []Class{c}, true, seed).Visits("/app")(0).Next(0)
		u, err := url.ParseRequestURI(q.Path)
		if err != nil || u.Path != "/app" {
			t.Fatalf("%s: %v", q.Path, err)
		}
		for key, mean := range map[string]float64{"cpu": float64(c.CPU.Nanoseconds()) / 1e3, "disk": c.Disk, "bytes": float64(c.Network)} {
			got, _ := strconv.ParseFloat(strings.TrimSuffix(u.Query().Get(key), "us"), 64)
			if want := mean * size; math.Abs(got-want) > 1 {
				t.Fatalf("%s: %s is %v, want %v", q.Path, key, got, want)
			}
		}
	})
}

// burner uses the processor time that a request asks for in its own thread, and answers with its bytes.
func burner(w http.ResponseWriter, r *http.Request) {
	cpu, err := time.ParseDuration(r.URL.Query().Get("cpu"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	burn(cpu)
	bytes, _ := strconv.Atoi(r.URL.Query().Get("bytes"))
	_, _ = w.Write(make([]byte, bytes))
}

var burning sync.Mutex

// burn uses processor time of this process, one request after the other.
func burn(cpu time.Duration) {
	burning.Lock()
	defer burning.Unlock()
	for end := cpuTime() + cpu; cpuTime() < end; {
		_ = unix.Getpid()
	}
}

func TestClassesAreServedByARealService(t *testing.T) {
	url := serve(t, burner)
	before := cpuTime()
	classes := []Class{{Name: "home", Share: 1, CPU: 2 * time.Millisecond, Network: 4000}}
	sum, _ := run(t, t.Context(), Options{URL: url, Arrivals: every(4*time.Millisecond, 100), Visit: mix(t, classes, false, 1).Visits("")})
	if sum.Errors > 0 || sum.Requests != 100 || sum.Bytes != 400_000 || cpuTime()-before < 200*time.Millisecond {
		t.Errorf("%+v, %v of processor time", sum, cpuTime()-before)
	}
}

// Interactive response time law: users / (think + response) = throughput, for every service.
func TestUsersObeyTheResponseTimeLaw(t *testing.T) {
	classes := []Class{{Name: "only", Share: 1, Network: 1000}}
	synctest.Test(t, func(t *testing.T) {
		for _, answer := range []time.Duration{0, 500 * time.Millisecond, 3 * time.Second} {
			f := newFake(func(int) time.Duration { return answer })
			const users, seconds = 200, 60
			u, err := NewUsers(mix(t, classes, false, 1), []UserStep{{0, users}}, time.Second, "", 1)
			if err != nil {
				t.Fatal(err)
			}
			sum, _ := visiting(t, t.Context(), f, Options{Arrivals: u, Visit: u.Visit, Until: seconds * time.Second})
			want := users * seconds / (1 + answer.Seconds())
			if got := float64(sum.Requests); math.Abs(got/want-1) > 0.05 || sum.Errors > 0 || sum.Visits != users {
				t.Errorf("answers after %v: %v requests, want %.0f; %+v", answer, got, want, sum)
			}
		}
	})
}

// When the number decreases, the users who arrived last leave; when it increases, others arrive. At every moment the number is as
// configured, plus users whose last request is still open.
func TestUsersComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := []UserStep{{0, rapid.IntRange(0, 10).Draw(t, "users")}}
		for i := range rapid.IntRange(0, 6).Draw(t, "steps") {
			steps = append(steps, UserStep{time.Duration(i+1) * 10 * time.Second, rapid.IntRange(0, 10).Draw(t, "users")})
		}
		u, err := NewUsers(mix(t, shop(), true, 2), steps, 500*time.Millisecond, "", 2)
		if err != nil {
			t.Fatal(err)
		}
		end := time.Duration(len(steps)) * 10 * time.Second
		active := make([]map[int]bool, len(steps)) // the users who sent a request in the second half of each step
		for i := range active {
			active[i] = map[int]bool{}
		}
		visits := 0
		for at, ok := u.Next(); ok; at, ok = u.Next() {
			visit := u.Visit(at).(*user)
			visits++
			for q, more := visit.Next(at); more && q.At < end; q, more = visit.Next(q.At) {
				if step := int(q.At / (10 * time.Second)); q.At%(10*time.Second) > 5*time.Second {
					if visit.number >= steps[step].Users {
						t.Fatalf("user %d is still there at %v, with %d wanted", visit.number, q.At, steps[step].Users)
					}
					active[step][visit.number] = true
				}
			}
		}
		for i, step := range steps {
			// A user sends ten requests on average in the second half of a step, so hardly any user sends none.
			if len(active[i]) > step.Users || len(active[i]) < step.Users-2 {
				t.Fatalf("%d of %d users asked after %v", len(active[i]), step.Users, step.At)
			}
		}
	})
}

// Shares change at the steps' times; a step without shares changes nothing, and users of one mix do not change that of another.
func TestMixOverTime(t *testing.T) {
	m := mix(t, shop(), false, 3)
	if err := m.Over([]MixStep{{0, []float64{1, 0}}, {time.Second, []float64{0, 2}}, {2 * time.Second, []float64{0, 0}}}); err != nil {
		t.Fatal(err)
	}
	for at, want := range []int{0, 0, 1, 1, 1} {
		if class, _ := m.Draw(time.Duration(at) * 500 * time.Millisecond); class != want {
			t.Errorf("after %d half seconds a request of class %d, want %d", at, class, want)
		}
	}
	for name, steps := range map[string][]MixStep{
		"too few": {{0, []float64{1}}}, "negative": {{0, []float64{1, -1}}}, "no number": {{0, []float64{1, math.NaN()}}},
		"out of order": {{1, []float64{1, 1}}, {1, []float64{1, 1}}},
	} {
		if err := mix(t, shop(), false, 1).Over(steps); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPages(t *testing.T) {
	m := mix(t, shop(), true, 3)
	m.Pages(func(class string, number uint64) string { return fmt.Sprintf("/%s?n=%d", class, number%10) })
	seen := map[string]bool{}
	for range 200 {
		q, _ := m.Visits("")(time.Second).Next(0)
		if seen[q.Path] = true; q.Bytes != 0 || !strings.HasPrefix(q.Path, "/"+q.Class+"?n=") {
			t.Fatalf("%+v", q)
		}
	}
	if len(seen) != 20 {
		t.Errorf("%d pages, want 10 of each class", len(seen))
	}
}

func TestClassAndUserMistakes(t *testing.T) {
	for name, classes := range map[string][]Class{
		"none": nil, "no share": {{Name: "a", CPU: 1}}, "negative": {{Name: "a", Share: 1, Network: -1}},
		"no number": {{Name: "a", Share: 1, Disk: math.NaN()}},
	} {
		if _, err := NewMix(classes, false, 1); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	m := mix(t, shop(), false, 1)
	for name, err := range map[string]error{
		"no think":     second(NewUsers(m, []UserStep{{0, 1}}, 0, "", 1)),
		"negative":     second(NewUsers(m, []UserStep{{0, -1}}, 1, "", 1)),
		"out of order": second(NewUsers(m, []UserStep{{5, 1}, {5, 2}}, 1, "", 1)),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }
