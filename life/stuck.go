package life

import "time"

// Refusal is what is known of an instance that the scaler could not stop.
type Refusal struct {
	times int       // how often in a row
	again time.Time // not before this is it tried again
}

// Refusals are the instances that the scaler could not stop. The zero Refusal is tried again at once.
type Refusals map[string]Refusal

// longestPause is the longest pause before the scaler is asked again to stop an instance. The first is of a second, and each is twice the
// one before: a refusal may last for days, and for some providers each attempt is several calls, of which they allow only so many.
const longestPause = time.Minute

// Note records that an instance could not be stopped.
func (r Refusals) Note(now time.Time, id string) {
	was := r[id]
	pause := min(time.Second<<min(was.times, 6), longestPause)
	r[id] = Refusal{was.times + 1, now.Add(pause)}
}

// Urge ends all pauses: a person asked for something, and may have removed the cause.
func (r Refusals) Urge() {
	for id := range r {
		r[id] = Refusal{}
	}
}
