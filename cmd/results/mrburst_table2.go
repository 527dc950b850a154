package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
)

// burstResource is a row like those of MRburst's Table 2: forecasts of when the credits of one resource run out, which no provider shows.
type burstResource struct {
	Resource quell.Resource `json:"resource"`
	Type     string         `json:"type"`
	Over     float64        `json:"over"`  // mean use above the baseline, as a part of the burst's
	AfterS   []float64      `json:"after"` // when they ran out, by seed
	// Errors are |estimated - real| / real, the mean over the seeds, at each part of the time in burstParts.
	Errors []float64 `json:"errors"`
}

// After is the mean time until they ran out.
func (r burstResource) After() string {
	sum := 0.0
	for _, s := range r.AfterS {
		sum += s
	}
	return (time.Duration(sum/float64(len(r.AfterS))) * time.Second).Round(time.Second).String()
}

// What is played for that table.
const (
	burstPlayWindow = 10.0 // seconds
	burstVaries     = 0.3  // the use of a window varies by as much, up and down
	burstMeasured   = 0.02 // standard deviation of a measured use, as a fraction
)

// burstParts are when forecasts are judged, as parts of the time until the credits run out.
var burstParts = []float64{0.1, 0.25, 0.5, 0.75, 0.9}

// playTable2 plays a new t2.micro with a volume of 40 GiB, whose processor, volume and network are used above the baseline.
func playTable2() (rows []burstResource, err error) {
	micro, err := credit.Shipped().Find("t2.micro")
	if err != nil {
		return nil, err
	}
	volume, err := credit.Shipped().Find("gp2")
	if err != nil {
		return nil, err
	}
	const gib, link = 40, 500e6 // the table has no burst of this network
	buckets := micro.Buckets()
	network := buckets[quell.Network]
	network.Burst = link
	buckets[quell.Network] = network
	buckets[quell.Disk] = volume.Disk.Bucket(gib)
	for _, r := range []quell.Resource{quell.CPU, quell.Disk, quell.Network} {
		kind := "t2.micro"
		if r == quell.Disk {
			kind = fmt.Sprintf("gp2, %d GiB", gib)
		}
		for _, over := range []float64{0.25, 0.6} {
			row := burstResource{Resource: r, Type: kind, Over: over, Errors: make([]float64, len(burstParts))}
			for seed := range uint64(mrburstSeeds) {
				row.play(buckets[r], rand.New(rand.NewPCG(seed, uint64(100*over))))
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// play uses a resource until its credits are spent, and judges what was said meanwhile.
func (row *burstResource) play(b credit.Bucket, rng *rand.Rand) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	track, left := b.New(at), b.Launch
	mean := b.Baseline + row.Over*(b.Burst-b.Baseline)
	var said []float64 // after each window: when the credits will be spent, in seconds since the beginning
	passed := 0.0
	for left > 0 {
		use := mean * (1 + burstVaries*(2*rng.Float64()-1))
		if spent, ends := b.Depletion(left, use); ends && spent <= burstPlayWindow {
			passed += spent
			break
		}
		left, passed = b.After(left, use, burstPlayWindow), passed+burstPlayWindow
		at = at.Add(time.Duration(burstPlayWindow * float64(time.Second)))
		track, _ = track.Follow(&b, credit.Reading{At: at, WindowS: burstPlayWindow, Use: use * (1 + burstMeasured*rng.NormFloat64())})
		when := 0.0
		if f, ok := b.Forecast(track); ok && f.Depleted != nil {
			when = passed + *f.Depleted
		}
		said = append(said, when)
	}
	row.AfterS = append(row.AfterS, passed)
	for i, part := range burstParts {
		window := min(int(part*passed/burstPlayWindow), len(said)-1)
		row.Errors[i] += burstSaid{SaidS: said[window], TrueS: passed}.Error() / mrburstSeeds
	}
}
