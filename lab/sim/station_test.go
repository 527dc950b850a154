package sim

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive is a station implemented by its definition: it advances all work in small steps from event to event.
type naive struct {
	firstCome bool
	servers   float64
	share     float64 // left by a fluid neighbour
	now       float64
	held      float64 // open work, integrated over time
	some      float64 // time with open work
	open      []naiveWork
	done      map[int32]float64
}

type naiveWork struct {
	left float64
	ref  int32
}

// speeds of the open work, in order of arrival.
func (n *naive) speed(i int) float64 {
	switch {
	case !n.firstCome:
		return math.Min(1, n.servers/float64(len(n.open))) * n.share
	case float64(i) < n.servers:
		return n.share
	}
	return 0
}

func (n *naive) advance(to float64) {
	for len(n.open) > 0 {
		next, at := -1, math.Inf(1)
		for i, w := range n.open {
			if v := n.speed(i); v > 0 && n.now+w.left/v < at {
				next, at = i, n.now+w.left/v
			}
		}
		until := math.Min(at, to)
		n.held, n.some = n.held+(until-n.now)*float64(len(n.open)), n.some+until-n.now
		for i := range n.open {
			n.open[i].left -= (until - n.now) * n.speed(i)
		}
		n.now = until
		if at > to {
			break
		}
		n.done[n.open[next].ref] = at
		n.open = slices.Delete(n.open, next, next+1)
	}
	n.now = to
}

func TestStationDoesWhatItsDisciplineSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		firstCome := rapid.Bool().Draw(t, "first come")
		servers := float64(rapid.IntRange(1, 3).Draw(t, "servers"))
		discipline := Sharing
		if firstCome {
			discipline = FirstCome
		}
		s := newStation(servers, discipline)
		n := &naive{firstCome: firstCome, servers: servers, share: 1, done: map[int32]float64{}}
		done, now, given, cancelled := map[int32]float64{}, 0.0, 0.0, map[int32]bool{}
		play := func(to float64) {
			for s.next() <= to {
				at := s.next()
				done[s.step()] = at
			}
		}
		count := int32(rapid.IntRange(1, 40).Draw(t, "requests"))
		for ref := range count {
			now += rapid.Float64Range(0, 2).Draw(t, "gap")
			play(now)
			n.advance(now)
			if rapid.IntRange(0, 3).Draw(t, "neighbour") == 0 {
				use := rapid.Float64Range(0, 0.9).Draw(t, "use")
				s.setFluid(now, use)
				n.share = 1 - use
			}
			work := rapid.Float64Range(0.01, 3).Draw(t, "work")
			s.add(now, work, ownService, ref)
			n.open = append(n.open, naiveWork{work, ref})
			given += work
			if rapid.IntRange(0, 9).Draw(t, "cancel") == 0 {
				victim := n.open[rapid.IntRange(0, len(n.open)-1).Draw(t, "victim")]
				s.cancel(now, victim.ref)
				given -= victim.left
				cancelled[victim.ref] = true
				n.open = slices.DeleteFunc(n.open, func(w naiveWork) bool { return w.ref == victim.ref })
			}
			left := 0.0
			for _, w := range n.open {
				left += w.left
			}
			s.advance(now)
			if got := s.carried(ownService); math.Abs(got-(given-left)) > 1e-8 {
				t.Fatalf("carried %v at %v, want %v", got, now, given-left)
			}
			if math.Abs(s.held-n.held) > 1e-8 || math.Abs(s.some-n.some) > 1e-8 || s.pieces() != len(n.open) {
				t.Fatalf("%d pieces, %v in %v s until %v; want %d, %v in %v s", s.pieces(), s.held, s.some, now, len(n.open), n.held, n.some)
			}
		}
		play(math.MaxFloat64)
		n.advance(1e6)
		for ref := range count {
			if math.Abs(done[ref]-n.done[ref]) > 1e-8 {
				t.Fatalf("request %d (cancelled %v) ended at %v, want %v", ref, cancelled[ref], done[ref], n.done[ref])
			}
		}
	})
}

func TestNeighboursCarryWhatTheyAskForAndDropWhatIsTooMuch(t *testing.T) {
	for _, d := range []Discipline{Sharing, FirstCome} {
		s := newStation(1, d)
		s.setNeighbours(0, 0.4, 0.003, 1, 1)
		for s.next() < 300 {
			s.step()
		}
		s.advance(300)
		if carried := s.carried(ownNeighbours) / 300; math.Abs(carried-0.4) > 0.02 {
			t.Errorf("%s: neighbours carried %v, want 0.4", d, carried)
		}
		s.setNeighbours(300, 1.5, 0.003, 1, 1)
		for s.next() < 400 {
			s.step()
		}
		s.advance(400)
		waiting := s.arrived[ownNeighbours] - s.carried(ownNeighbours)
		if waiting > backlogSeconds+1e-9 || waiting < backlogSeconds-1 || s.neighbours.dropped == 0 {
			t.Errorf("%s: under overload %v s wait, %v dropped", d, waiting, s.neighbours.dropped)
		}
		s.setNeighbours(400, 0, 0.003, 1, 1)
		for s.next() < math.Inf(1) {
			s.step()
		}
		if s.now > 400+backlogSeconds+1 {
			t.Errorf("%s: neighbours that ended were open until %v", d, s.now)
		}
	}
}

// Neighbours arrive at random: the gaps between them are exponential, and their mean gives the use that the neighbours ask for.
func TestNeighboursComeAtRandom(t *testing.T) {
	s := newStation(2, Sharing)
	s.setNeighbours(0, 0.4, 0.004, 1, 1) // 200 a second: 0.8 s of work on two servers
	const n = 20_000
	var sum, squares float64
	below, last := 0, 0.0
	for range n {
		at := s.neighbours.next
		gap := at - last
		sum, squares, last = sum+gap, squares+gap*gap, at
		if gap < 0.005*math.Ln2 {
			below++
		}
		s.arrive(&s.neighbours, ownNeighbours)
	}
	mean := sum / n
	spread := math.Sqrt(squares/n - mean*mean)
	if math.Abs(mean-0.005) > 0.05*0.005 || math.Abs(spread-mean) > 0.05*mean || math.Abs(float64(below)/n-0.5) > 0.02 {
		t.Errorf("gaps of %.5f s, spread %.5f s, %.3f of them below the median; want 0.005 s, as much, 0.5", mean, spread, float64(below)/n)
	}
}

// If the use changes, the time since the last arrival still counts: at twice the use, half of the remaining time is left.
func TestAChangeOfUseKeepsTheGap(t *testing.T) {
	s := newStation(1, Sharing)
	s.setNeighbours(0, 0.2, 0.003, 1, 1)
	left := s.neighbours.next
	s.setNeighbours(left/2, 0.4, 0.003, 1, 1)
	if got, want := s.neighbours.next, left/2+left/4; math.Abs(got-want) > 1e-12 {
		t.Errorf("the next neighbour comes at %v, want %v", got, want)
	}
}

func TestCalendarAndAgendaKeepTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "stations")
		c, times := newCalendar(n), make([]float64, n)
		for i := range times {
			times[i] = math.Inf(1)
		}
		var a agenda
		var planned []float64
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			i := rapid.IntRange(0, n-1).Draw(t, "station")
			times[i] = float64(rapid.IntRange(0, 9).Draw(t, "at"))
			c.set(int32(i), times[i])
			if station, at := c.first(); at != slices.Min(times) || times[station] != at || slices.Index(times, at) != int(station) {
				t.Fatalf("first is %d at %v of %v", station, at, times)
			}
			planned = append(planned, times[i])
			a.add(times[i], nil)
		}
		slices.Sort(planned)
		last := entry{at: -1}
		for _, want := range planned {
			e := a.pop()
			if e.at != want || e.at == last.at && e.number < last.number {
				t.Fatalf("got %v (entry %d) after %v (entry %d), want %v", e.at, e.number, last.at, last.number, want)
			}
			last = e
		}
	})
}
