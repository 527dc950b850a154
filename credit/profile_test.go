package credit

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// A file server as in MRburst, section 4: users download files of 10 MB, one after the other. What limits them is the link or the disk.
type fileServer struct {
	link, disk float64 // bit/s, operations per second
	noise      *rand.Rand
}

const (
	windowNoise    = 0.02 // relative standard deviation of a window's response time
	fileBits       = 8e7
	fileOperations = 40.0 // of 256 KB
	fileCPU        = 0.05 // seconds of a processor
)

// window plays a window with this many users: all download at the speed of the narrowest resource.
func (s fileServer) window(limited quell.Resource, limit, users float64) ProfileRow {
	link, disk, cpu := s.link, s.disk, 1.0
	switch limited {
	case quell.Network:
		link = math.Min(link, limit)
	case quell.Disk:
		disk = math.Min(disk, limit)
	case quell.CPU:
		cpu = math.Min(cpu, limit)
	}
	perSecond := math.Min(math.Min(link/fileBits, disk/fileOperations), cpu/fileCPU)
	noise := 1.0
	if s.noise != nil {
		noise += windowNoise * s.noise.NormFloat64()
	}
	use := map[quell.Resource]float64{
		quell.Network: perSecond * fileBits * 0.9, quell.Disk: perSecond * fileOperations, quell.CPU: perSecond * fileCPU,
	}
	return ProfileRow{Limited: limited, Limit: limit, Load: users, LatencyMS: 1000 * users / perSecond * noise, Use: use}
}

// sparse profiles a server as the paper does: four limits of two resources at one load, and five loads at one limit.
func (s fileServer) sparse() (rows []ProfileRow) {
	add := func(r quell.Resource, limit, users float64) {
		for range 10 {
			rows = append(rows, s.window(r, limit, users))
		}
	}
	for _, limit := range []float64{61, 100, 200, 500} {
		add(quell.Network, limit*1e6, 50)
		add(quell.Disk, limit, 50)
	}
	for _, users := range []float64{10, 25, 75, 100} {
		add(quell.Network, 200e6, users)
		add(quell.Disk, 200, users)
		add("", 0, users)
	}
	return rows
}

func profileOf(t *testing.T, rows []ProfileRow) *Profile {
	t.Helper()
	p, err := NewProfile(rows)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Over a grid of 96 pairs of limit and load, of which 16 were measured, the profile predicts response times within 5% on average.
func TestSparseProfile(t *testing.T) {
	measured := fileServer{link: 800e6, disk: 3000, noise: rand.New(rand.NewPCG(1, 1))}
	truth := fileServer{link: 800e6, disk: 3000}
	p := profileOf(t, measured.sparse())
	if p.Cells != 16 || p.Grid != 40 {
		t.Errorf("%d of %d cells", p.Cells, p.Grid)
	}
	off, offUse, n := 0.0, 0.0, 0.0
	for _, r := range []quell.Resource{quell.Network, quell.Disk} {
		unit := map[quell.Resource]float64{quell.Network: 1e6, quell.Disk: 1}[r]
		for _, limit := range []float64{61, 80, 100, 150, 200, 300, 400, 500} {
			for _, users := range []float64{10, 20, 40, 60, 80, 100} {
				want := truth.window(r, limit*unit, users)
				got, ok := p.Predict(r, limit*unit, users)
				if !ok {
					t.Fatalf("%s %v, %v users: not covered", r, limit, users)
				}
				slow := want.LatencyMS * (1 + 1.28*windowNoise) // the 90th percentile of windows
				off += math.Abs(got.LatencyMS-slow) / slow
				for resource, use := range want.Use {
					offUse += math.Abs(got.Use[resource]-use) / use / float64(len(want.Use))
				}
				n++
			}
		}
	}
	t.Logf("response time: %.1f%%, use: %.1f%% over %.0f pairs", 100*off/n, 100*offUse/n, n)
	if off/n > 0.05 {
		t.Errorf("response times are off by %.1f%% on average", 100*off/n)
	}
	if offUse/n > 0.15 {
		t.Errorf("uses are off by %.1f%% on average", 100*offUse/n)
	}
	for _, beyond := range []struct {
		r           quell.Resource
		limit, load float64
	}{{quell.Network, 10e6, 50}, {quell.Network, 0, 200}, {quell.Network, 200e6, 1000}, {quell.CPU, 0.1, 50}, {quell.Network, 900e6, 50}} {
		if got, ok := p.Predict(beyond.r, beyond.limit, beyond.load); ok {
			t.Errorf("%+v is not covered, and %+v is predicted", beyond, got)
		}
	}
}

// What was measured far beyond the objective does not change what is predicted near it: the curve goes through what was measured at each
// limit. A row of a limit that was lifted at once counts as it is.
func TestProfileGoesThroughWhatWasMeasured(t *testing.T) {
	var rows []ProfileRow
	add := func(limited quell.Resource, limit, load, ms float64, n int) {
		for range n {
			rows = append(rows, ProfileRow{Limited: limited, Limit: limit, Load: load, LatencyMS: ms,
				Use: map[quell.Resource]float64{quell.Network: max(limit, 1)}})
		}
	}
	add("", 0, 50, 1100, 3)
	add("", 0, 20, 450, 3)
	for limit, ms := range map[float64]float64{93: 1190, 47: 2345, 23: 7200} {
		add(quell.Network, limit, 50, ms, 3)
	}
	add(quell.Network, 12, 50, 7900, 1)
	add(quell.Network, 47, 20, 950, 3)
	p, err := NewProfile(rows)
	if err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[float64]float64{93: 1190, 62: 1776, 47: 2345} {
		if got, ok := p.Predict(quell.Network, limit, 50); !ok || math.Abs(got.LatencyMS-want) > 0.02*want {
			t.Errorf("under a limit of %v: %.0f ms, %t, want %.0f", limit, got.LatencyMS, ok, want)
		}
	}
	if c, ok := p.Tightest(quell.Network, 50, 2345); !ok || math.Abs(c.Limit-47) > 0.5 {
		t.Errorf("the tightest limit is %v, %t, want 47", c.Limit, ok)
	}
}

// The chosen limit keeps the objective, and its credits last at least 90% as long as under the best limit that a search over all limits of
// the real server finds, and far longer than without.
func TestChooseIsNearTheBest(t *testing.T) {
	server := fileServer{link: 800e6, disk: 3000}
	p := profileOf(t, fileServer{link: 800e6, disk: 3000, noise: rand.New(rand.NewPCG(2, 1))}.sparse())
	micro, _ := Shipped().Type("t2.micro")
	gp2, _ := Shipped().Type("gp2")
	buckets := micro.Buckets()
	buckets[quell.Disk] = gp2.Disk.Bucket(40)
	balances := map[quell.Resource]float64{}
	for r, b := range buckets {
		balances[r] = b.Launch
	}
	for _, users := range []float64{10, 30, 50, 80, 100} {
		s := Situation{Load: users, ObjectiveMS: 400 * users, Margin: 0.03, Buckets: buckets, Balances: balances}
		got, ok := p.Choose(s)
		if !ok || got.Limited == "" || got.Depleted == nil {
			t.Fatalf("%v users: %+v, %v", users, got, ok)
		}
		real := server.window(got.Limited, got.Limit, users)
		if real.LatencyMS > s.ObjectiveMS {
			t.Errorf("%v users: a limit of the %s to %.4g misses the objective: %.0f ms of %.0f", users, got.Limited, got.Limit, real.LatencyMS,
				s.ObjectiveMS)
		}
		lasts, _ := s.depletion(real.Use)
		best, free := 0.0, 0.0
		for _, r := range []quell.Resource{quell.Network, quell.Disk} {
			for limit := 61.0; limit <= 500; limit++ {
				unit := map[quell.Resource]float64{quell.Network: 1e6, quell.Disk: 1}[r]
				if row := server.window(r, limit*unit, users); row.LatencyMS <= s.ObjectiveMS {
					if at, _ := s.depletion(row.Use); at != nil {
						best = math.Max(best, *at)
					}
				}
			}
		}
		if at, _ := s.depletion(server.window("", 0, users).Use); at != nil {
			free = *at
		}
		t.Logf("%v users: %s limited to %.4g lasts %.0f s, the best limit %.0f s, none %.0f s", users, got.Limited, got.Limit, *lasts, best, free)
		if *lasts < 0.9*best || *lasts < 2.4*free {
			t.Errorf("%v users: credits last %.0f s, under the best limit %.0f s, under none %.0f s", users, *lasts, best, free)
		}
	}
}

func TestChooseOnlyWhatHelps(t *testing.T) {
	server := fileServer{link: 800e6, disk: 3000}
	p := profileOf(t, server.sparse())
	bucket := Bucket{Baseline: 100e6, Burst: 800e6, PerUse: 1e-6, Cap: 1e5}
	s := Situation{Load: 50, ObjectiveMS: 20_000, Margin: 0.05, Buckets: map[quell.Resource]Bucket{quell.Network: bucket},
		Balances: map[quell.Resource]float64{quell.Network: 1e5}}
	if got, ok := p.Choose(s); !ok || got.Limited == "" || got.LatencyMS > 19_000 {
		t.Errorf("with an objective of 20 s: %+v, %v", got, ok)
	}
	s.ObjectiveMS = 1000
	if got, ok := p.Choose(s); ok {
		t.Errorf("nothing keeps 1 s: %+v", got)
	}
	s.ObjectiveMS, s.Load = 1e9, 500
	if got, ok := p.Choose(s); ok {
		t.Errorf("a load that was not profiled: %+v", got)
	}
	s.Load = 50
	s.Buckets = map[quell.Resource]Bucket{quell.Network: {Baseline: 1e9, Burst: 1e9, PerUse: 1e-6}}
	if got, ok := p.Choose(s); !ok || got.Limited != "" || got.Depleted != nil {
		t.Errorf("credits last without a limit: %+v, %v", got, ok)
	}
	s.Buckets[quell.Network], s.Prices = bucket, map[quell.Resource]float64{quell.Network: 1e-9}
	if got, ok := p.Choose(s); !ok || got.USD != 0 || got.Use[quell.Network] > 100e6 {
		t.Errorf("in money, use beyond the baseline is dearer than waiting: %+v, %v", got, ok)
	}
}

// A tighter objective never gives a tighter limit, and a prediction never falls with the load or with a tighter limit.
func TestProfilesAreMonotone(t *testing.T) {
	p := profileOf(t, fileServer{link: 800e6, disk: 3000, noise: rand.New(rand.NewPCG(3, 1))}.sparse())
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Float64Range(61e6, 490e6).Draw(t, "limit")
		load := rapid.Float64Range(1, 100).Draw(t, "load")
		here, _ := p.Predict(quell.Network, limit, load)
		looser, _ := p.Predict(quell.Network, limit*1.02, load)
		busier, _ := p.Predict(quell.Network, limit, load*1.02)
		if looser.LatencyMS > here.LatencyMS*(1+1e-9) || busier.LatencyMS < here.LatencyMS*(1-1e-9) {
			t.Fatalf("%v, looser %v, busier %v", here.LatencyMS, looser.LatencyMS, busier.LatencyMS)
		}
		s := Situation{Load: load, ObjectiveMS: rapid.Float64Range(100, 1e5).Draw(t, "objective")}
		if got, ok := p.Choose(s); ok && got.LatencyMS > s.ObjectiveMS*(1+1e-9) {
			t.Fatalf("%+v misses %v ms", got, s.ObjectiveMS)
		}
	})
}

func TestReadProfile(t *testing.T) {
	var text strings.Builder
	for _, row := range (fileServer{link: 800e6, disk: 3000}).sparse() {
		line, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(line, '\n'))
	}
	if p, err := ReadProfile(strings.NewReader(text.String())); err != nil || p.Cells != 16 {
		t.Errorf("%+v, %v", p, err)
	}
	const good = `{"limited":"cpu","limit":0.5,"load":10,"latency_ms":50,"use":{"cpu":0.4}}` + "\n"
	const free = `{"load":10,"latency_ms":40,"use":{"cpu":0.5}}` + "\n"
	for why, tc := range map[string]struct{ text, want string }{
		"empty":             {"", "no row without a limit"},
		"limits only":       {good, "no row without a limit"},
		"no limits":         {free, "no row has a limit"},
		"one limit only":    {free + good + good, "all rows have one limit"},
		"no JSON":           {good + "{", "line:2"},
		"unknown field":     {`{"limit":1,"loads":2}`, "line:1"},
		"a limit of what":   {`{"limit":1,"load":10,"latency_ms":50,"use":{"cpu":0.4}}`, "line:1: limited and limit go together"},
		"memory":            {`{"limited":"memory","limit":1,"load":10,"latency_ms":50,"use":{"cpu":0.4}}`, "cannot be limited"},
		"negative":          {`{"limited":"cpu","limit":-1,"load":10,"latency_ms":50,"use":{"cpu":0.4}}`, "limit: -1 is not from 0"},
		"no load":           {`{"limited":"cpu","limit":1,"latency_ms":50,"use":{"cpu":0.4}}`, "is missing"},
		"use of everything": {`{"limited":"cpu","limit":1,"load":10,"latency_ms":50,"use":{"all":0.4}}`, "line:1"},
		"absurd use":        {`{"limited":"cpu","limit":1,"load":10,"latency_ms":50,"use":{"cpu":-4}}`, "use.cpu"},
	} {
		if _, err := ReadProfile(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", why, err, tc.want)
		}
	}
}

func FuzzReadProfile(f *testing.F) {
	f.Add(`{"limited":"cpu","limit":0.5,"load":10,"latency_ms":50,"use":{"cpu":0.4}}` + "\n" +
		`{"load":10,"latency_ms":40,"use":{"cpu":0.5}}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ReadProfile(strings.NewReader(text))
		if err != nil {
			return
		}
		got, ok := p.Choose(Situation{Load: 10, ObjectiveMS: 100})
		if ok && (math.IsNaN(got.LatencyMS) || math.IsNaN(got.Limit)) {
			t.Fatalf("%+v", got)
		}
	})
}

// In unlimited mode the cheaper choice is the better one, although its credits end sooner. In standard mode it is the other way round.
func TestTheObjectiveIsMoneyWhereCreditsAreSold(t *testing.T) {
	cheap, lasting := Choice{USD: 0.01, Depleted: new(100.0)}, Choice{USD: 0.02, Depleted: new(1000.0)}
	standard := Situation{}
	unlimited := Situation{Prices: map[quell.Resource]float64{quell.CPU: 0.05}}
	if !unlimited.better(cheap, lasting) || unlimited.better(lasting, cheap) {
		t.Error("in unlimited mode the dearer choice counts as better")
	}
	if standard.better(cheap, lasting) || !standard.better(lasting, cheap) {
		t.Error("in standard mode the choice whose credits end sooner counts as better")
	}
}
