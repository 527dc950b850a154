package loadgen

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// contentStream makes the random numbers for what is requested independent of those for when (NewArrivals).
const contentStream = 1 << 33

// Video describes sessions that fetch a video in chunks: the first chunks without pause, then one in each chunk's play time, or
// later if the chunk before it has not arrived. Source: PRIMA, Table I.
type Video struct {
	Videos   int           // number of videos to choose from; their sizes are exponential
	Zipf     float64       // exponent of their popularity
	Sessions int           // number drawn in advance, from which arriving sessions are chosen
	Size     int64         // mean bytes of a session's video
	Rate     float64       // bit/s at which it plays
	Chunk    time.Duration // play time of one chunk
	Prefetch int           // chunks that are fetched at the start without pause
}

// ChunkBytes is the size of a whole chunk.
func (v Video) ChunkBytes() float64 { return v.Rate / 8 * v.Chunk.Seconds() }

func (v Video) validate() error {
	for _, rule := range []struct {
		holds bool
		path  string
	}{
		{v.Videos >= 1, "videos"}, {v.Sessions >= 1, "sessions"}, {v.Zipf >= 0 && !math.IsInf(v.Zipf, 0), "zipf"}, {v.Size >= 1, "size"},
		{v.Rate > 0 && !math.IsInf(v.Rate, 0), "rate"}, {v.Chunk > 0, "chunk"}, {v.Prefetch >= 1, "prefetch"},
	} {
		if !rule.holds {
			return &quell.InvalidError{Path: "video." + rule.path, Problem: "must be above zero and finite"}
		}
	}
	if v.ChunkBytes() < 1 {
		return &quell.InvalidError{Path: "video.chunk", Problem: fmt.Sprintf("%v is less than one byte of play", v.Chunk)}
	}
	return nil
}

// Programme is the set of sessions, and the choice of one for each arrival. The same description and seed give the same
// sessions in the same order, in simulators and on real machines.
type Programme struct {
	Playlists []Playlist // the drawn sessions
	video     Video
	rng       *rand.Rand
}

// Playlist is what one session fetches.
type Playlist struct {
	Video  int     // its rank by popularity, from 1
	Chunks int     // number of chunks; all but the last have full size
	Last   float64 // bytes of the last chunk
}

// NewProgramme draws the sessions to choose from: videos by their popularity, which falls as a power of their rank (Zipf). Sizes
// are exponential, and scaled so that the mean over the sessions is Video.Size. Errors are *quell.InvalidError.
func NewProgramme(v Video, seed uint64) (*Programme, error) {
	if err := v.validate(); err != nil {
		return nil, err
	}
	p := &Programme{Playlists: make([]Playlist, v.Sessions), video: v, rng: rand.New(rand.NewPCG(seed, contentStream))}
	popular, sizes, sum := make([]float64, v.Videos), make([]float64, v.Videos), 0.0
	for rank := range popular {
		sum += math.Pow(float64(rank+1), -v.Zipf)
		popular[rank], sizes[rank] = sum, p.rng.ExpFloat64()
	}
	chosen, total := make([]int, v.Sessions), 0.0
	for i := range chosen {
		rank, x := 0, p.rng.Float64()*sum
		for rank < len(popular)-1 && x >= popular[rank] {
			rank++
		}
		chosen[i] = rank
		total += sizes[rank]
	}
	scale, chunk := float64(v.Size)*float64(v.Sessions)/total, v.ChunkBytes()
	for i, rank := range chosen {
		bytes := math.Max(1, sizes[rank]*scale)
		chunks := math.Ceil(bytes / chunk)
		p.Playlists[i] = Playlist{Video: rank + 1, Chunks: int(chunks), Last: bytes - (chunks-1)*chunk}
	}
	return p, nil
}

// ChunkBytes is the number of bytes that a real client requests for the n-th chunk, from 0, of a playlist.
func (p *Programme) ChunkBytes(list, n int) int64 {
	bytes := p.video.ChunkBytes()
	if l := p.Playlists[list]; n == l.Chunks-1 {
		bytes = l.Last
	}
	return max(1, int64(math.Round(bytes)))
}

// Begin chooses the playlist of the next arriving session.
func (p *Programme) Begin() Playback {
	return Playback{programme: p, list: int32(p.rng.IntN(len(p.Playlists)))}
}

// Playback is one session: which chunk comes next, and when.
type Playback struct {
	programme *Programme
	list      int32
	asked     int32   // number of chunks requested so far
	due       float64 // when the last requested chunk was due
}

// Next counts one more chunk and returns when the client requests it. This time is never before now, the time at which the previous chunk
// arrived or the session began. Times are in seconds from any origin. After the last chunk, Next returns false and counts nothing.
func (p *Playback) Next(now float64) (due float64, ok bool) {
	v := &p.programme.video
	switch asked := int(p.asked); {
	case asked == p.programme.Playlists[p.list].Chunks:
		return 0, false
	case asked < v.Prefetch:
		p.due = now
	case asked == v.Prefetch:
		p.due = now + v.Chunk.Seconds()
	default:
		p.due = math.Max(now, p.due+v.Chunk.Seconds())
	}
	p.asked++
	return p.due, true
}

// Playlist is the index, among the programme's playlists, of the one that is played.
func (p *Playback) Playlist() int { return int(p.list) }

// Last returns whether the chunk that Next counted last is the session's last.
func (p *Playback) Last() bool { return int(p.asked) == p.programme.Playlists[p.list].Chunks }

// Visits returns the requests of each session that arrives: GET PATH?bytes=N with the header Range: bytes=0-(N-1). A server that
// makes answers of any size uses the query. A server of files, such as nginx or Apache, uses the header; it needs only one file of
// a whole chunk's size. In path, {video} stands for the video's rank; an empty path is /chunk.
func (p *Programme) Visits(path string) func(at time.Duration) Visit {
	path = cmp.Or(path, "/chunk")
	return func(time.Duration) Visit {
		play := p.Begin()
		video := strconv.Itoa(p.Playlists[play.list].Video)
		return &viewer{play: play, path: strings.ReplaceAll(path, "{video}", video) + "?bytes="}
	}
}

// viewer is the visit of one session.
type viewer struct {
	play Playback
	path string
}

func (v *viewer) Next(ended time.Duration) (Request, bool) {
	due, ok := v.play.Next(ended.Seconds())
	if !ok {
		return Request{}, false
	}
	bytes := v.play.programme.ChunkBytes(v.play.Playlist(), int(v.play.asked)-1)
	at := max(ended, time.Duration(math.Round(due*float64(time.Second))))
	return Request{At: at, Path: v.path + strconv.FormatInt(bytes, 10), Bytes: bytes, Range: true}, true
}
