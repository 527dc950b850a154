package bus

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/pack"
)

func state(t testing.TB, c *Conn) *State {
	t.Helper()
	s, err := c.State("video")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// noise does not compress, so its size is its stored size.
func noise(seed uint64, size int) []byte {
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	data := make([]byte, size)
	random.Read(data)
	return data
}

func TestStateKeepsTheLastValue(t *testing.T) {
	s := state(t, embedded(t))
	if _, err := s.Get(t.Context(), "policy"); !errors.Is(err, quell.ErrNoData) {
		t.Errorf("before the first Put: %v", err)
	}
	for i, size := range []int{0, 10, 3 << 20, pack.ChunkBytes, pack.ChunkBytes - 100, 2 << 20, 1, 3 << 20} {
		want := noise(uint64(i), size)
		if err := s.Put(t.Context(), "policy", want); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(t.Context(), "policy"); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes came back as %d, %v", size, len(got), err)
		}
	}
	if _, err := s.Get(t.Context(), "other"); !errors.Is(err, quell.ErrNoData) {
		t.Errorf("another key: %v", err)
	}
	wantWords(t, s.Put(t.Context(), "policy", make([]byte, pack.MaxValue+1)), "at most")
	wantWords(t, s.Put(t.Context(), "", nil), "needs a name")
}

func TestStateKeysAndServicesDoNotMeet(t *testing.T) {
	c := embedded(t)
	values := map[[2]string]string{}
	for _, service := range []string{"video", "my video", "my.video"} {
		for _, key := range []string{"a.b", "a b", "a", "a.0.0"} {
			values[[2]string{service, key}] = service + "/" + key
		}
	}
	for at, value := range values {
		s, err := c.State(at[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Put(t.Context(), at[1], []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	for at, want := range values {
		s, err := c.State(at[0])
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(t.Context(), at[1]); err != nil || string(got) != want {
			t.Errorf("%q is %q, %v", want, got, err)
		}
	}
}

func TestStateIsLikeAVariable(t *testing.T) {
	s := state(t, smallMessages(t))
	chunk := s.conn.chunkSize()
	rapid.Check(t, func(rt *rapid.T) {
		for i, size := range rapid.SliceOfN(rapid.SampledFrom([]int{1, chunk - 100, chunk + 1, 2*chunk + 1}), 1, 4).Draw(rt, "sizes") {
			want := noise(uint64(i), size)
			if err := s.Put(t.Context(), "k", want); err != nil {
				rt.Fatal(err)
			}
			if got, err := s.Get(t.Context(), "k"); err != nil || !bytes.Equal(got, want) {
				rt.Fatalf("%d bytes came back as %d, %v", size, len(got), err)
			}
		}
	})
}

func TestAWriterThatDiesLeavesTheOldValue(t *testing.T) {
	s := state(t, embedded(t))
	want := noise(1, 2*pack.ChunkBytes)
	if err := s.Put(t.Context(), "k", want); err != nil {
		t.Fatal(err)
	}
	head, err := s.readHead(t.Context(), s.kv, "k")
	if err != nil {
		t.Fatal(err)
	}
	// The test writes the same messages as a writer that is killed before it writes the head.
	if _, err := s.kv.Put(t.Context(), chunkKey("k", (head.Slot+1)%slots, 0), []byte("of another value")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), "k"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	// A reader that has read an old head must notice that the slot named there is being rewritten.
	if _, err := s.kv.Put(t.Context(), chunkKey("k", head.Slot, 1), []byte("of a third value")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.readValue(t.Context(), s.kv, "k"); !errors.Is(err, errOvertaken) {
		t.Errorf("mixed chunks: %v", err)
	}
}

func TestReadersSeeWholeValues(t *testing.T) {
	c := smallMessages(t)
	writer := state(t, c)
	values := [][]byte{noise(1, 3*c.chunkSize()), noise(2, 2*c.chunkSize()), noise(3, 10)}
	if err := writer.Put(t.Context(), "k", values[0]); err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	written := make(chan struct{})
	writing.Go(func() {
		defer close(written)
		for i := range 20 {
			if err := writer.Put(t.Context(), "k", values[i%len(values)]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writing.Wait()
	for reader := state(t, c); ; {
		got, err := reader.Get(t.Context(), "k")
		if err != nil && !errors.Is(err, errOvertaken) {
			t.Fatal(err)
		}
		if err == nil && !bytes.Equal(got, values[0]) && !bytes.Equal(got, values[1]) && !bytes.Equal(got, values[2]) {
			t.Fatalf("got %d bytes that nobody wrote", len(got))
		}
		select {
		case <-written:
			return
		default:
		}
	}
}

func TestStateSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	first := startServer(t, ServerOptions{StoreDir: dir})
	want := noise(7, 3*pack.ChunkBytes)
	if err := state(t, connect(t, Options{Server: first})).Put(t.Context(), "k", want); err != nil {
		t.Fatal(err)
	}
	if err := first.Shutdown(); err != nil {
		t.Fatal(err)
	}
	second := startServer(t, ServerOptions{StoreDir: dir})
	if got, err := state(t, connect(t, Options{Server: second})).Get(t.Context(), "k"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}
