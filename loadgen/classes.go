package loadgen

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// Class is a kind of request, with the mean amount of each resource that such a request needs.
type Class struct {
	Name    string
	Share   float64       // share of the requests, relative to the other classes' shares
	CPU     time.Duration // processor time on one core
	Disk    float64       // operations of the disk
	Memory  time.Duration // time that a request uses the reference machine's whole memory bandwidth
	Network int64         // bytes of the answer
}

// Mix draws requests of classes by their shares. The same arguments give the same requests in the same order.
type Mix struct {
	classes     []Class
	upTo        []float64 // upper bound of a uniform number from 0 to 1, for each class
	steps       []mixStep // how upTo changes later
	exponential bool
	pages       func(class string, number uint64) string // path of a request; nil: dynamic work
	rng         *rand.Rand
}

// MixStep sets the classes' shares from At (since the start) until the next step.
type MixStep struct {
	At     time.Duration
	Shares []float64 // by class; if all are 0, the shares before remain
}

type mixStep struct {
	at   time.Duration
	upTo []float64
}

// NewMix checks the classes. If exponential is set, a request's demands are multiplied by a random factor, exponential with mean
// one. Errors are *quell.InvalidError.
func NewMix(classes []Class, exponential bool, seed uint64) (*Mix, error) {
	if len(classes) == 0 {
		return nil, &quell.InvalidError{Path: "classes", Problem: "needs at least one class"}
	}
	m := &Mix{classes: classes, exponential: exponential}
	shares := make([]float64, len(classes))
	for i, c := range classes {
		if !(c.Share > 0) || math.IsInf(c.Share, 0) || c.CPU < 0 || c.Memory < 0 || c.Network < 0 || !(c.Disk >= 0) || math.IsInf(c.Disk, 0) {
			return nil, &quell.InvalidError{Path: fmt.Sprintf("classes[%d]", i), Problem: "needs a share above zero and demands of zero or more"}
		}
		shares[i] = c.Share
	}
	m.upTo = upTo(shares)
	m.rng = rand.New(rand.NewPCG(seed, contentStream))
	return m, nil
}

// upTo returns the upper bounds by which a uniform number from 0 to 1 chooses a class; nil if all shares are 0.
func upTo(shares []float64) []float64 {
	bounds, sum := make([]float64, len(shares)), 0.0
	for i, share := range shares {
		sum += share
		bounds[i] = sum
	}
	if sum == 0 {
		return nil
	}
	for i := range bounds {
		bounds[i] /= sum
	}
	return bounds
}

// Over makes the shares change over time. The steps must be in order of At. Errors are *quell.InvalidError. Requests must then be drawn in
// order of time.
func (m *Mix) Over(steps []MixStep) error {
	for i, s := range steps {
		wrong := len(s.Shares) != len(m.classes) || s.At < 0 || i > 0 && s.At <= steps[i-1].At ||
			slices.ContainsFunc(s.Shares, func(x float64) bool { return !(x >= 0) || math.IsInf(x, 0) })
		if wrong {
			return &quell.InvalidError{Path: fmt.Sprintf("shares[%d]", i),
				Problem: "needs a share of zero or more for every class, and must come after the step before it"}
		}
		if bounds := upTo(s.Shares); bounds != nil {
			m.steps = append(m.steps, mixStep{s.At, bounds})
		}
	}
	return nil
}

// Pages makes the requests ones for pages of an application: path returns the path of a page of a class for a random number.
func (m *Mix) Pages(path func(class string, number uint64) string) { m.pages = path }

// sibling returns a mix that draws other requests from the same classes.
func (m *Mix) sibling(seed, stream uint64) *Mix {
	s := *m
	s.rng = rand.New(rand.NewPCG(seed, stream))
	return &s
}

// Draw returns the class of a request at a time since the start, and the factor by which its demands differ from the class's means.
func (m *Mix) Draw(at time.Duration) (class int, size float64) {
	for len(m.steps) > 0 && m.steps[0].at <= at {
		m.upTo, m.steps = m.steps[0].upTo, m.steps[1:]
	}
	x := m.rng.Float64()
	for class < len(m.upTo)-1 && x >= m.upTo[class] {
		class++
	}
	if m.exponential {
		return class, m.rng.ExpFloat64()
	}
	return class, 1
}

// Pause draws a user's think time, as a multiple of the mean. It is exponential.
func (m *Mix) Pause() float64 { return m.rng.ExpFloat64() }

// request draws a request. Without pages, its path has the demands: /work?class=home&cpu=5000us&bytes=1000. It leaves out demands that the
// class does not have; each of the others is at least one microsecond, byte or operation.
func (m *Mix) request(at time.Duration, path string) Request {
	which, size := m.Draw(at)
	c := m.classes[which]
	q := Request{At: at, Class: c.Name}
	if m.pages != nil {
		q.Path = m.pages(c.Name, m.rng.Uint64())
		return q
	}
	var b strings.Builder
	b.WriteString(path + "?class=" + c.Name)
	add := func(key string, mean float64, unit string) int64 {
		if mean == 0 {
			return 0
		}
		amount := max(1, int64(math.Round(mean*size)))
		b.WriteString("&" + key + "=" + strconv.FormatInt(amount, 10) + unit)
		return amount
	}
	add("cpu", float64(c.CPU.Nanoseconds())/1e3, "us")
	add("disk", c.Disk, "")
	add("memory", float64(c.Memory.Nanoseconds())/1e3, "us")
	q.Bytes = add("bytes", float64(c.Network), "")
	q.Path = b.String()
	return q
}

// Visits returns one request for each arrival: GET PATH?class=NAME&cpu=5000us&disk=2&memory=300us&bytes=1000, with the demands
// that its class has. An empty path is /work.
func (m *Mix) Visits(path string) func(at time.Duration) Visit {
	path = workPath(path)
	return func(at time.Duration) Visit { return &once{m.request(at, path), true} }
}

func workPath(path string) string {
	if path == "" {
		return "/work"
	}
	return path
}

// UserStep sets the number of users from At (since the start) until the next step.
type UserStep struct {
	At    time.Duration
	Users int
}

// Users is a closed loop: each user waits for an answer, thinks, and sends the next request. Users has the times at which users
// arrive, and the requests of each, for one run. A user's requests and pauses depend only on the seed and on the user.
type Users struct {
	mix   *Mix
	path  string
	think time.Duration
	steps []UserStep
	seed  uint64

	step int // the step whose users are arriving
	came int // the user who arrived last, from 0
}

// NewUsers checks the steps, which must be in order of At. Errors are *quell.InvalidError. A user pauses before the first request.
// Path is as in Mix.Visits; think is the mean of the exponential pauses. When the number of users decreases, a user leaves instead
// of sending the next request. If the run has no end (Options.Until), the last users never leave.
func NewUsers(mix *Mix, steps []UserStep, think time.Duration, path string, seed uint64) (*Users, error) {
	if think <= 0 {
		return nil, &quell.InvalidError{Path: "think", Problem: "must be above zero"}
	}
	for i, s := range steps {
		if s.Users < 0 || s.At < 0 || i > 0 && s.At <= steps[i-1].At {
			return nil, &quell.InvalidError{Path: fmt.Sprintf("users[%d]", i), Problem: "must not be negative, and come after the step before it"}
		}
	}
	return &Users{mix: mix, path: workPath(path), think: think, steps: steps, seed: seed, came: -1}, nil
}

// Next returns the times at which users arrive.
func (u *Users) Next() (time.Duration, bool) {
	for u.step < len(u.steps) {
		if u.came+1 < u.steps[u.step].Users {
			u.came++
			return u.steps[u.step].At, true
		}
		u.came = u.steps[u.step].Users - 1
		u.step++
	}
	return 0, false
}

// Visit returns the requests of the user who arrived at the time that Next returned last.
func (u *Users) Visit(time.Duration) Visit {
	return &user{of: u, number: u.came, step: u.step, mix: u.mix.sibling(u.seed, contentStream+1+uint64(u.came))}
}

// user is one of the users.
type user struct {
	of     *Users
	number int
	step   int // the last step known to include the user
	mix    *Mix
}

func (u *user) Next(ended time.Duration) (Request, bool) {
	at := ended + time.Duration(u.mix.Pause()*float64(u.of.think))
	for steps := u.of.steps; u.step+1 < len(steps) && steps[u.step+1].At <= at; u.step++ {
		if steps[u.step+1].Users <= u.number {
			return Request{}, false
		}
	}
	return u.mix.request(at, u.of.path), true
}
