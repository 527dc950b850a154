package credit

import (
	"cmp"
	"math"
	"time"

	"github.com/quellhq/quell"
)

// Estimate is what is known of a balance: it lies between Low and High credits.
type Estimate struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Exactly returns the estimate of a balance that is known.
func Exactly(balance float64) Estimate { return Estimate{balance, balance} }

// Middle returns the middle of the estimate.
func (e Estimate) Middle() float64 { return (e.Low + e.High) / 2 }

// Constants of following a balance.
const (
	meterError = 0.02             // a measured use is wrong by at most this fraction of itself
	shownLate  = 5 * time.Minute  // a balance may be true as long as this after its own time; without a time it may be as old as this
	sameStamp  = 30 * time.Second // balances whose own times differ by less are the same one
	atBaseline = 0.15             // a use that differs from the baseline by at most this fraction of it may be held there by the provider
	above      = 1.15             // a use of this many times the baseline cannot be had without credits
	provenBy   = 2 * shownLate    // use beyond an empty balance that is worth what is earned in this time proves that it is not refused
	absurd     = 1.05             // a shown balance above this many times the cap and the launch credits together is not believed
	forget     = 0.05             // weight of the newest window in the mean use
)

// Reading is what one window of measurement says of a resource that has credits.
type Reading struct {
	At      time.Time // end of the window
	WindowS float64   // its length
	Use     float64   // mean use, in the unit of the bucket
	Shown   *float64  // balance that the provider shows; nil if it shows none
	Slow    bool      // the instance is clearly slower than its use explains

	// Past is what was used since the shown balance was true, in the unit of the bucket; nil if the balance's own time is not known.
	Past *quell.CreditPast
}

// Track is what is remembered of a balance from one reading to the next. It is a value: Follow returns a changed copy.
type Track struct {
	Estimate
	Known    bool      `json:"known,omitempty"` // Estimate is meaningful
	At       time.Time `json:"at"`              // end of the last window
	Use      float64   `json:"use"`             // mean use of late
	Variance float64   `json:"variance"`        // of single windows' uses
	Windows  int       `json:"windows"`

	Shown   *float64  `json:"shown,omitempty"`   // the last balance that the provider showed
	ShownAt time.Time `json:"shown_at,omitzero"` // when it was true or, if that is not known, when it was first shown
	Used    float64   `json:"used,omitempty"`    // use since then, integrated over time
	Gap     bool      `json:"unseen,omitempty"`  // use was not measured in some time since then
	Most    float64   `json:"most,omitempty"`    // the largest balance that was shown

	// Sold says whether use beyond an empty balance was had (unlimited mode) or refused; nil: neither was seen.
	Sold   *bool   `json:"sold,omitempty"`
	Beyond float64 `json:"beyond,omitempty"` // credits that were spent beyond what was earned since the shown balance has been empty
	KeptS  float64 `json:"kept_s,omitempty"` // for how long the instance has been slow at its baseline since then, in seconds
}

// New returns the memory of an instance that has just started, at its launch balance. If neither that nor a cap is published, the balance
// is not known.
func (b Bucket) New(now time.Time) Track {
	return Track{Estimate: Exactly(b.Launch), Known: b.Cap > 0 || b.Launch > 0, At: now}
}

// Unknown returns the memory of a balance that may be anything up to the cap.
func (b Bucket) Unknown(now time.Time) Track {
	return Track{Estimate: Estimate{High: math.Max(b.Cap, b.Launch)}, Known: b.Cap > 0, At: now}
}

// Follow returns the memory after a reading. If the bucket is known (not nil), the balance is integrated over the window by the measured
// use; in a gap before the window the use is unknown. A new balance shown by the provider, less what was used since it was true, replaces
// the estimate. A shown balance that is older than the last one changes nothing. If nothing is shown, a slow instance whose use stays at
// the baseline has no credits left, and one whose use stays above it has some. A reading that is not newer than the last one changes
// nothing; if clocks jumped back, the estimate is kept and followed from there.
//
// If the shown balance changed, the episode since the last change is returned.
func (t Track) Follow(b *Bucket, r Reading) (Track, *Episode) {
	seconds := r.At.Sub(t.At).Seconds()
	switch {
	case t.At.IsZero():
		t.At, seconds = r.At, 0
	case seconds < -shownLate.Seconds():
		t.At, t.ShownAt, t.Used, t.Gap = r.At, r.At, 0, true
		return t, nil
	case seconds <= 0:
		return t, nil
	}
	t.At = r.At
	gap := seconds - r.WindowS
	if gap > r.WindowS && r.WindowS > 0 {
		seconds, t.Gap = r.WindowS, true
	} else {
		gap = 0
	}
	t = t.averaged(r.Use)
	t.Used += r.Use * seconds
	if t.Known && b != nil {
		if gap > 0 {
			t.Estimate = b.unseen(t.Estimate, gap)
		}
		t.Estimate = b.spent(t.Estimate, r.Use, seconds)
	}
	var e *Episode
	if r.Shown != nil && b.Believable(*r.Shown) {
		t, e = t.show(r, b)
	} else if b != nil {
		t = b.felt(t, r)
	}
	if b != nil {
		t = b.proven(t, r, seconds)
	}
	return t, e
}

// Empty returns whether a shown balance may have been 0 when it was true: it is no more than what is earned until a balance is shown.
func (b Bucket) Empty(shown float64) bool { return shown <= b.Earned()*shownLate.Seconds() }

// AtBaseline returns whether a use may be held at the baseline by the provider.
func (b Bucket) AtBaseline(use float64) bool {
	return math.Abs(use-b.Baseline) <= atBaseline*b.Baseline
}

// proven finds out whether use beyond the credits is had although the provider shows none, or is refused.
func (b Bucket) proven(t Track, r Reading, seconds float64) Track {
	if t.Shown == nil || !b.Empty(*t.Shown) {
		t.Beyond, t.KeptS = 0, 0
		return t
	}
	t.Beyond = math.Max(0, t.Beyond+b.Drain(r.Use)*seconds)
	if t.KeptS += seconds; !r.Slow || !b.AtBaseline(r.Use) {
		t.KeptS = 0
	}
	switch had, refused := true, false; {
	case t.Beyond > b.Earned()*provenBy.Seconds():
		t.Sold = &had
	case t.KeptS >= shownLate.Seconds():
		t.Sold = &refused
	}
	return t
}

// show takes a balance that the provider shows.
func (t Track) show(r Reading, b *Bucket) (Track, *Episode) {
	shown, at, past := *r.Shown, t.At, quell.CreditPast{}
	if r.Past != nil {
		past = *r.Past
		at = t.At.Add(-time.Duration(past.AgeS * float64(time.Second)))
	}
	if t.Shown != nil && (r.Past == nil && *t.Shown == shown || r.Past != nil && at.Sub(t.ShownAt) < sameStamp) {
		return t, nil
	}
	unseen := past.AgeS-past.SeenS > sameStamp.Seconds()
	var e *Episode
	if t.Shown != nil && !t.Gap && !unseen {
		e = newEpisode(*t.Shown, shown, math.Max(0, t.Used-past.Used), at.Sub(t.ShownAt))
	}
	t.Shown, t.ShownAt, t.Used, t.Gap = &shown, at, past.Used, unseen
	t.Most = math.Max(t.Most, shown)
	t.Known, t.Estimate = true, Exactly(shown)
	switch {
	case b == nil:
	case r.Past != nil:
		t.Estimate = b.since(shown, past, t.Use)
	default:
		t.Estimate = b.late(shown, t.Use)
	}
	return t, e
}

// averaged updates the mean use and its variance.
func (t Track) averaged(use float64) Track {
	t.Windows++
	part := math.Max(forget, 1/float64(t.Windows))
	d := use - t.Use
	t.Use += part * d
	t.Variance = (1 - part) * (t.Variance + part*d*d)
	return t
}

// spent integrates an estimate over a time of constant use.
func (b Bucket) spent(e Estimate, use, seconds float64) Estimate {
	return Estimate{b.After(e.Low, use*(1+meterError), seconds), b.After(e.High, use*(1-meterError), seconds)}
}

// unseen integrates an estimate over a time in which the use is not known. At most the resource was used as fast as it allows.
func (b Bucket) unseen(e Estimate, seconds float64) Estimate {
	e.High = b.After(e.High, 0, seconds)
	fastest := cmp.Or(b.Burst, b.Most)
	if e.Low = b.After(e.Low, fastest, seconds); fastest == 0 {
		e.Low = 0
	}
	return e
}

// Believable returns whether a provider can have shown a balance in earnest.
func (b *Bucket) Believable(shown float64) bool {
	return isBalance(shown) && (b == nil || b.Cap == 0 || shown <= absurd*(b.Cap+b.Launch))
}

func isBalance(shown float64) bool { return shown >= 0 && !math.IsInf(shown, 0) }

// late returns the estimate of a balance that has just been shown. It may be up to shownLate old.
func (b Bucket) late(shown, use float64) Estimate {
	now := b.After(shown, use, shownLate.Seconds())
	return Estimate{math.Min(shown, now), math.Max(shown, now)}
}

// since returns the estimate of a balance after the time since it was shown. use stands in for what was not measured of that time. The
// balance may have been true up to shownLate after the time that it is dated with, because providers date the beginning of a period.
func (b Bucket) since(shown float64, past quell.CreditPast, use float64) Estimate {
	if past.AgeS > 0 {
		use = (past.Used + use*math.Max(0, past.AgeS-past.SeenS)) / past.AgeS
	}
	long := b.spent(Exactly(shown), use, past.AgeS)
	short := b.spent(Exactly(shown), use, math.Max(0, past.AgeS-shownLate.Seconds()))
	return Estimate{math.Min(long.Low, short.Low), math.Max(long.High, short.High)}
}

// felt infers the balance from how fast the instance is.
func (b Bucket) felt(t Track, r Reading) Track {
	switch {
	case r.Slow && b.AtBaseline(r.Use):
		t.Known, t.Estimate = true, Estimate{}
	case t.Known && t.High == 0 && r.Use > above*b.Baseline:
		t.Estimate = Estimate{High: b.Cap} // it has credits, so the estimate was wrong
		t.Known = b.Cap > 0
	}
	return t
}

// Forecast says when a balance runs out if the use stays as it has been. A time that is nil never comes.
type Forecast struct {
	Left     Estimate // balance now
	Depleted *float64 // seconds from now, from the middle of the estimate and the mean use
	Soonest  *float64 // seconds, if the balance is the lowest and the use the highest that are likely
	Latest   *float64
}

// Forecast predicts when the balance runs out: Eq. 2 with the mean use, and with the ends of the estimate and of an interval of two
// standard errors around the mean use. ok is false if the balance is not known.
func (b Bucket) Forecast(t Track) (f Forecast, ok bool) {
	if !t.Known || t.Windows == 0 {
		return Forecast{}, false
	}
	// The variance of a mean with geometric weights is part / (2 - part) of that of one value.
	part := math.Max(forget, 1/float64(t.Windows))
	doubt := math.Max(meterError*t.Use, 2*math.Sqrt(t.Variance*part/(2-part)))
	at := func(balance, use float64) *float64 {
		if seconds, ok := b.Depletion(balance, use); ok {
			return &seconds
		}
		return nil
	}
	return Forecast{
		Left: t.Estimate, Depleted: at(t.Middle(), t.Use), Soonest: at(t.Low, t.Use+doubt), Latest: at(t.High, math.Max(0, t.Use-doubt)),
	}, true
}
