package sim

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/loadgen"
)

// clients make the requests of the scenario's workload: each arrival makes a request or begins a video session, and each user makes
// requests one after the other. What an arrival requests depends only on the seed and on its number, so every policy gets the same work.
type clients struct {
	w       *world
	load    *scenario.Workload
	mix     *loadgen.Mix // of classes
	end     float64      // no new requests after this time
	ask     func(order)
	classes []class

	programme *loadgen.Programme // sessions of a video workload; an arrival gets one of them
	lasts     []class            // the last chunk of a video is shorter, so it has a class of its own
	sessions  []loadgen.Playback
	unused    []int32 // free places for sessions

	wanted int    // number of users that the scenario wants now
	here   []bool // by user: whether this user makes requests
}

// order is a request that a client makes.
type order struct {
	work    class
	size    float64 // factor by which the demands of its class are multiplied
	class   int32
	session int32 // the session that waits for the answer; alone if there is none
}

// alone is the session number of a request that belongs to no session, because its client makes no other request.
const alone int32 = -1

func newClients(w *world, load *scenario.Workload, seed uint64, end float64, ask func(order)) (c *clients, err error) {
	c = &clients{w: w, load: load, end: end, ask: ask, classes: classesOf(load)}
	switch load.Kind {
	case scenario.Video:
		if c.programme, err = loadgen.NewProgramme(loadgen.Video(load.Video), seed); err != nil {
			return nil, err
		}
		for _, list := range c.programme.Playlists {
			c.lasts = append(c.lasts, fileClass(list.Last))
		}
	case scenario.Classes, scenario.Users:
		var classes []loadgen.Class
		for _, k := range load.Classes {
			classes = append(classes, loadgen.Class(k))
		}
		if c.mix, err = loadgen.NewMix(classes, load.Spread == scenario.Exponential, seed); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// mixOver makes the classes' shares those of a recorded load, if the scenario has one. The load begins at boot, and measuring at zero.
func (c *clients) mixOver(sc *scenario.Scenario, boot, zero float64) error {
	var steps []loadgen.MixStep
	for i, step := range sc.Mixes() {
		at := duration(zero) + step.At
		if i == 0 {
			at = duration(boot) // the first shares also hold during the warm-up
		}
		steps = append(steps, loadgen.MixStep{At: at, Shares: step.Shares})
	}
	if len(steps) == 0 {
		return nil
	}
	return c.mix.Over(steps)
}

// classesOf lists the demands of the kinds of requests that a workload has.
func classesOf(load *scenario.Workload) []class {
	switch load.Kind {
	case scenario.File:
		return []class{fileClass(float64(load.Size))}
	case scenario.Video:
		return []class{fileClass(load.Video.ChunkBytes())}
	}
	var classes []class
	for _, k := range load.Classes {
		var c class
		want := func(r quell.Resource, amount, overhead float64) {
			if amount > 0 {
				c = append(c, demand{kindOf(r), always(amount + overhead)})
			}
		}
		want(quell.CPU, k.CPU.Seconds(), 0)
		want(quell.Disk, k.Disk, 0)
		want(quell.Memory, k.Memory.Seconds(), 0)
		want(quell.Network, float64(k.Network), headerBytes)
		classes = append(classes, c)
	}
	return classes
}

// fileClass is the work of one request for a file.
func fileClass(bytes float64) class {
	return class{{kindOf(quell.Network), always(bytes + headerBytes)}}
}

// arrive makes the request, or begins the video session, of one arrival.
func (c *clients) arrive() {
	switch c.load.Kind {
	case scenario.File:
		c.ask(order{work: c.classes[0], size: 1, session: alone})
	case scenario.Video:
		c.tuneIn()
	default:
		c.ask(c.draw(alone))
	}
}

// draw makes a request of a random class. All its demands differ from their means by the same random factor.
func (c *clients) draw(session int32) order {
	which, size := c.mix.Draw(duration(c.w.now))
	return order{work: c.classes[which], size: size, class: int32(which), session: session}
}

// answered continues a session whose request was answered or has failed. It only schedules the session's next request.
func (c *clients) answered(session int32) {
	switch {
	case session == alone:
	case c.load.Kind == scenario.Video:
		c.watchOn(session)
	default:
		c.think(session)
	}
}

// later calls ask at the time at, unless the run is over by then.
func (c *clients) later(at float64, ask func()) {
	if at < c.end {
		c.w.agenda.add(at, ask)
	}
}

// setUsers changes the number of users. If there are too many, the last ones leave after their next answer.
func (c *clients) setUsers(n int) {
	c.wanted = n
	for user := range n {
		if user == len(c.here) {
			c.here = append(c.here, false)
		}
		if !c.here[user] {
			c.here[user] = true
			c.think(int32(user))
		}
	}
}

// think makes a user pause, and then make its next request.
func (c *clients) think(user int32) {
	c.later(c.w.now+c.mix.Pause()*c.load.Think.Seconds(), func() {
		if int(user) >= c.wanted {
			c.here[user] = false
			return
		}
		c.ask(c.draw(user))
	})
}

// tuneIn begins a video session.
func (c *clients) tuneIn() {
	id := int32(len(c.sessions))
	if n := len(c.unused); n > 0 {
		id, c.unused = c.unused[n-1], c.unused[:n-1]
	} else {
		c.sessions = append(c.sessions, loadgen.Playback{})
	}
	c.sessions[id] = c.programme.Begin()
	c.sessions[id].Next(c.w.now)
	c.fetch(id)
}

// fetch requests a session's next chunk.
func (c *clients) fetch(id int32) {
	work := c.classes[0]
	if s := &c.sessions[id]; s.Last() {
		work = c.lasts[s.Playlist()]
	}
	c.ask(order{work: work, size: 1, session: id})
}

// watchOn continues a session after a chunk has arrived.
func (c *clients) watchOn(id int32) {
	due, ok := c.sessions[id].Next(c.w.now)
	if !ok {
		c.unused = append(c.unused, id)
		return
	}
	c.later(due, func() { c.fetch(id) })
}
