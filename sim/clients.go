package sim

import (
	"math"
	"math/rand/v2"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scenario"
)

// clients ask for what the scenario's workload says: once for each arrival, or again and again as answers come. What an
// arrival asks for depends on the seed and on its place among the arrivals alone, so every policy gets the same work.
type clients struct {
	w       *world
	load    *scenario.Workload
	rng     *rand.Rand
	end     float64 // from then on nobody asks for anything
	ask     func(order)
	classes []class
	upTo    []float64 // of an even number from 0 to 1, for each class

	programme []playlist // sessions of a video workload to choose from
	sessions  []session
	unused    []int32 // of sessions

	wanted int    // users
	here   []bool // of users
}

// order is a request that a client makes.
type order struct {
	work    class
	size    float64 // times the demands of the class
	class   int32
	session int32 // to be told of the answer; alone: nobody
}

// alone is the session of requests that nothing follows.
const alone int32 = -1

// clientStream keeps the clients' random numbers apart from those of arrivals, neighbours and faults.
const clientStream = 1 << 33

func newClients(w *world, load *scenario.Workload, seed uint64, end float64, ask func(order)) *clients {
	c := &clients{w: w, load: load, rng: rand.New(rand.NewPCG(seed, clientStream)), end: end, ask: ask, classes: classesOf(load)}
	sum := 0.0
	for _, k := range load.Classes {
		sum += k.Share
		c.upTo = append(c.upTo, sum)
	}
	for i := range c.upTo {
		c.upTo[i] /= sum
	}
	if load.Kind == scenario.Video {
		c.programme = programmeOf(load.Video, c.rng)
	}
	return c
}

// classesOf is the work of a workload's requests.
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

// probeClass stands for the probes where a world's resources are counted up.
func probeClass() class { return fileClass(0) }

// arrive is one arrival of the open process.
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

// draw makes a request of a random class. All demands of a request are as much larger than their means as one another.
func (c *clients) draw(session int32) order {
	which, x := 0, c.rng.Float64()
	for which < len(c.upTo)-1 && x >= c.upTo[which] {
		which++
	}
	size := 1.0
	if c.load.Spread == scenario.Exponential {
		size = c.rng.ExpFloat64()
	}
	return order{work: c.classes[which], size: size, class: int32(which), session: session}
}

// answered tells the session of a request that it was answered, or failed. What follows happens after what is going on
// at this moment.
func (c *clients) answered(session int32) {
	switch {
	case session == alone:
	case c.load.Kind == scenario.Video:
		c.watchOn(session)
	default:
		c.think(session)
	}
}

// later asks at a moment, unless all is over by then.
func (c *clients) later(at float64, ask func()) {
	if at < c.end {
		c.w.agenda.add(at, ask)
	}
}

// setUsers brings users, or lets the last ones leave after their next answer.
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

// think lets a user pause, and ask then.
func (c *clients) think(user int32) {
	c.later(c.w.now+c.rng.ExpFloat64()*c.load.Think.Seconds(), func() {
		if int(user) >= c.wanted {
			c.here[user] = false
			return
		}
		c.ask(c.draw(user))
	})
}

// playlist is the video of a session.
type playlist struct {
	chunks int32
	last   class // the last chunk is shorter
}

// session is somebody who watches a video.
type session struct {
	list *playlist
	next int32   // chunk
	due  float64 // when the next chunk is wanted
}

// programmeOf draws the sessions to choose from: videos by their popularity, which falls as a power of their rank (Zipf).
// Sizes are exponential, scaled so that a session's mean is as the scenario says.
func programmeOf(v scenario.VideoSessions, rng *rand.Rand) []playlist {
	popular, sizes, sum := make([]float64, v.Videos), make([]float64, v.Videos), 0.0
	for rank := range popular {
		sum += math.Pow(float64(rank+1), -v.Zipf)
		popular[rank], sizes[rank] = sum, rng.ExpFloat64()
	}
	chosen, total := make([]float64, v.Sessions), 0.0
	for i := range chosen {
		rank, x := 0, rng.Float64()*sum
		for rank < len(popular)-1 && x >= popular[rank] {
			rank++
		}
		chosen[i] = sizes[rank]
		total += sizes[rank]
	}
	scale, chunk := float64(v.Size)*float64(v.Sessions)/total, v.ChunkBytes()
	programme := make([]playlist, v.Sessions)
	for i, size := range chosen {
		bytes := max(1, size*scale)
		chunks := math.Ceil(bytes / chunk)
		programme[i] = playlist{int32(chunks), fileClass(bytes - (chunks-1)*chunk)}
	}
	return programme
}

// tuneIn begins a session.
func (c *clients) tuneIn() {
	id := int32(len(c.sessions))
	if n := len(c.unused); n > 0 {
		id, c.unused = c.unused[n-1], c.unused[:n-1]
	} else {
		c.sessions = append(c.sessions, session{})
	}
	c.sessions[id] = session{list: &c.programme[c.rng.IntN(len(c.programme))]}
	c.fetch(id)
}

// fetch asks for a session's next chunk.
func (c *clients) fetch(id int32) {
	s := &c.sessions[id]
	work := c.classes[0]
	if s.next++; s.next == s.list.chunks {
		work = s.list.last
	}
	c.ask(order{work: work, size: 1, session: id})
}

// watchOn goes on after a chunk: at once while the buffer fills, then at the pace of play.
func (c *clients) watchOn(id int32) {
	s := &c.sessions[id]
	if s.next == s.list.chunks {
		c.unused = append(c.unused, id)
		return
	}
	switch prefetch := int32(c.load.Video.Prefetch); {
	case s.next < prefetch:
		s.due = c.w.now
	case s.next == prefetch:
		s.due = c.w.now + c.load.Video.Chunk.Seconds()
	default:
		s.due = max(c.w.now, s.due+c.load.Video.Chunk.Seconds())
	}
	c.later(s.due, func() { c.fetch(id) })
}
