package bus

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/bus/pack"
	"github.com/quellhq/quell/internal/need"
)

func journal(t testing.TB, c *Conn, opts JournalOptions) *Journal {
	t.Helper()
	j, err := c.Journal("video", opts)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// appendEvents appends events one second apart, named by their number.
func appendEvents(t testing.TB, j *Journal, n int) {
	t.Helper()
	for i := range n {
		if err := j.Append(t.Context(), event(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func event(i int) Entry {
	return Entry{At: epoch.Add(time.Duration(i) * time.Second), Kind: EventEntry, Text: fmt.Sprint(i)}
}

func entries(t testing.TB, j *Journal, since time.Time) []Entry {
	t.Helper()
	var got []Entry
	if err := j.Read(t.Context(), since, func(e Entry) error { got = append(got, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func texts(t testing.TB, j *Journal) []string {
	t.Helper()
	var got []string
	for _, e := range entries(t, j, time.Time{}) {
		got = append(got, e.Text)
	}
	return got
}

func TestEntriesComeBackInOrder(t *testing.T) {
	j := journal(t, embedded(t), JournalOptions{})
	want := []Entry{
		{At: epoch, Kind: EventEntry, Text: "started"},
		{At: epoch.Add(time.Second), Kind: PlanEntry, Applied: true, Mode: quell.Act, Changes: []string{"weight i1 0.5 -> 1"},
			Plan: &quell.Plan{At: epoch, Service: "video", Policy: "prima", Weights: map[string]float64{"i1": 1}}},
		{At: epoch, Kind: EventEntry, Text: "the clock went back"},
	}
	for _, e := range want {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	got := entries(t, j, time.Time{})
	for i := range got {
		if i > 0 && got[i].Seq <= got[i-1].Seq {
			t.Errorf("sequence %d follows %d", got[i].Seq, got[i-1].Seq)
		}
		got[i].Seq = 0
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestReadSince(t *testing.T) {
	j := journal(t, embedded(t), JournalOptions{})
	appendEvents(t, j, 10)
	got := entries(t, j, epoch.Add(7*time.Second))
	if len(got) != 3 || got[0].Text != "7" {
		t.Errorf("got %+v, want 7, 8, 9", got)
	}
	if got := entries(t, j, epoch.Add(time.Hour)); len(got) != 0 {
		t.Errorf("got %+v from the future", got)
	}
	enough := errors.New("enough")
	calls := 0
	err := j.Read(t.Context(), epoch, func(Entry) error { calls++; return enough })
	if !errors.Is(err, enough) || calls != 1 {
		t.Errorf("%d calls, %v; want the first error at once", calls, err)
	}
}

func TestAJournalThatIsNotThere(t *testing.T) {
	c := embedded(t)
	j := journal(t, c, JournalOptions{})
	if err := j.Read(t.Context(), epoch, nil); !errors.Is(err, quell.ErrNoData) {
		t.Errorf("entries: %v", err)
	}
	if err := j.ReadSnapshots(t.Context(), epoch, nil); !errors.Is(err, quell.ErrNoData) {
		t.Errorf("snapshots: %v", err)
	}
	if services, err := c.Services(t.Context()); err != nil || len(services) > 0 {
		t.Errorf("services %v, %v; reading must create nothing", services, err)
	}
	if _, err := c.Journal("video", JournalOptions{Bytes: 1}); err == nil {
		t.Error("a journal of one byte")
	}
}

func TestServices(t *testing.T) {
	c := embedded(t)
	for _, service := range []string{"video", "my shop.eu"} {
		j, err := c.Journal(service, JournalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		appendEvents(t, j, 1)
	}
	if got, err := c.Services(t.Context()); err != nil || !slices.Equal(got, []string{"my shop.eu", "video"}) {
		t.Errorf("services %q, %v", got, err)
	}
}

func TestBadEntries(t *testing.T) {
	j := journal(t, embedded(t), JournalOptions{})
	for why, e := range map[string]Entry{
		"no time":        {Kind: EventEntry},
		"unknown kind":   {At: epoch, Kind: "rumour"},
		"without a plan": {At: epoch, Kind: PlanEntry},
		"NaN":            {At: epoch, Kind: PlanEntry, Plan: &quell.Plan{Weights: map[string]float64{"i1": math.NaN()}}},
	} {
		wantWords(t, j.Append(t.Context(), e), why)
	}
}

// bigPlan does not fit one message even when it is compressed.
func bigPlan(instances int) *quell.Plan {
	random := rand.New(rand.NewPCG(3, 4))
	p := &quell.Plan{At: epoch, Service: "video", Weights: map[string]float64{}, Capacity: map[string]float64{},
		PredictedMS: map[string]float64{}}
	for i := range instances {
		id := fmt.Sprintf("instance-%05d", i)
		p.Weights[id], p.Capacity[id], p.PredictedMS[id] = random.Float64(), random.Float64(), random.Float64()
		p.Reasons = append(p.Reasons, quell.Reason{Code: "keep", Instance: id, Text: fmt.Sprintf("U %g", random.Float64())})
	}
	return p
}

func TestALargePlanTakesSeveralMessages(t *testing.T) {
	j := journal(t, smallMessages(t), JournalOptions{})
	plan := bigPlan(2000)
	if err := j.Append(t.Context(), Entry{At: epoch, Kind: PlanEntry, Plan: plan}); err != nil {
		t.Fatal(err)
	}
	appendEvents(t, j, 1)
	got := entries(t, j, epoch)
	if len(got) != 2 || !reflect.DeepEqual(got[0].Plan, plan) || got[1].Text != "0" {
		t.Fatalf("%d entries; the plan did not come back as it was", len(got))
	}
	if got[0].Seq < 2 {
		t.Errorf("the plan took %d message; it should need several to test anything", got[0].Seq)
	}
}

func TestAnEntryLargerThanTheJournal(t *testing.T) {
	j := journal(t, embedded(t), JournalOptions{Bytes: leastJournal})
	err := j.Append(t.Context(), Entry{At: epoch, Kind: EventEntry, Text: hex.EncodeToString(noise(1, leastJournal/2))})
	wantUserError(t, err, "bus.journal_bytes")
}

// TestARecordThatIsStoredTwiceCountsOnce stores messages again because their answers were lost, so late that the server no longer
// recognises them as duplicates.
func TestARecordThatIsStoredTwiceCountsOnce(t *testing.T) {
	j := journal(t, embedded(t), JournalOptions{})
	appendEvents(t, j, 1)
	long := event(1)
	long.Text = hex.EncodeToString(noise(1, 2*pack.ChunkBytes))
	for _, e := range []Entry{long, event(2)} {
		record, err := j.encode(e)
		if err != nil {
			t.Fatal(err)
		}
		msgs, err := j.entries.prepare(record, e.At)
		if err != nil {
			t.Fatal(err)
		}
		for _, sent := range [][]*nats.Msg{msgs[:1], msgs[:1], msgs, msgs} {
			for _, m := range sent {
				m.Header.Set(nats.MsgIdHdr, cryptorand.Text())
			}
			if err := j.entries.store(t.Context(), sent); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := texts(t, j); !slices.Equal(got, []string{"0", long.Text, "2"}) {
		t.Errorf("%d entries, want 3 different ones", len(got))
	}
}

// TestAServerThatLagsBehindIsNoShortJournal reads from a server that does not have the newest entry.
func TestAServerThatLagsBehindIsNoShortJournal(t *testing.T) {
	t.Parallel()
	s, ring := guarded(t, ServerOptions{})
	j := journal(t, connect(t, as(s, ring, auth.Controller, "c")), JournalOptions{})
	appendEvents(t, j, 3)
	stream, err := j.conn.js.Stream(t.Context(), j.entries.name)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	var got []string
	err = j.Read(t.Context(), time.Time{}, func(e Entry) error { got = append(got, e.Text); return nil })
	if err == nil || !strings.Contains(err.Error(), "ask again") || !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestUnfinishedEntriesAreIgnored(t *testing.T) {
	c := embedded(t)
	j := journal(t, c, JournalOptions{})
	appendEvents(t, j, 1)
	// This message is all that a writer leaves behind if it is killed after the first message of an entry.
	unfinished := func() {
		msgs, err := j.entries.prepare(noise(1, 2*pack.ChunkBytes), epoch.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := j.entries.store(t.Context(), msgs[:1]); err != nil {
			t.Fatal(err)
		}
	}
	unfinished()
	if err := j.Append(t.Context(), event(1)); err != nil {
		t.Fatal(err)
	}
	unfinished()
	if got := texts(t, j); !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("entries %q, want the two whole ones", got)
	}
}

func TestDamagedEntriesAreReportedAfterTheOthers(t *testing.T) {
	j := journal(t, embedded(t), JournalOptions{})
	appendEvents(t, j, 1)
	if err := j.entries.append(t.Context(), []byte("not JSON"), epoch); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(t.Context(), event(1)); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := j.Read(t.Context(), epoch, func(e Entry) error { got = append(got, e.Text); return nil })
	wantWords(t, err, "entry 2")
	if !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("entries %q, want both good ones", got)
	}
}

func TestTheOldestEntriesGoFirst(t *testing.T) {
	dir := t.TempDir()
	c := connect(t, Options{Server: startServer(t, ServerOptions{StoreDir: dir})})
	j := journal(t, c, JournalOptions{Bytes: leastJournal})
	const n = 100
	for i := range n { // some 4 MB after compression, four times what fits
		e := event(i)
		e.Text += " " + hex.EncodeToString(noise(uint64(i), 40_000))
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	got := texts(t, j)
	if len(got) == 0 || len(got) == n {
		t.Fatalf("%d of %d entries are there; some must have gone", len(got), n)
	}
	for i, text := range got {
		number, _, _ := strings.Cut(text, " ")
		if want := fmt.Sprint(n - len(got) + i); number != want {
			t.Fatalf("entry %d is %s, want %s: the newest, without gaps", i, number, want)
		}
	}
	if size := diskUse(t, dir); size > leastJournal {
		t.Errorf("the store takes %d bytes", size)
	}
}

func diskUse(t testing.TB, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func snapshot(i int) quell.Snapshot {
	return quell.Snapshot{At: epoch.Add(time.Duration(i) * time.Second), Service: "video",
		Instances: []quell.Instance{{ID: fmt.Sprint(i), State: quell.Ready}}}
}

func snapshots(t testing.TB, j *Journal, since time.Time) []string {
	t.Helper()
	var got []string
	if err := j.ReadSnapshots(t.Context(), since, func(s quell.Snapshot) error {
		got = append(got, s.Instances[0].ID)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSnapshotsAreWrittenTogether(t *testing.T) {
	c := embedded(t)
	j, reader := journal(t, c, JournalOptions{FlushSnapshots: 4}), journal(t, c, JournalOptions{})
	for i := range 10 {
		if err := j.AppendSnapshot(t.Context(), snapshot(i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := snapshots(t, reader, epoch); len(got) != 8 {
		t.Errorf("%d snapshots are written, want two times four", len(got))
	}
	info, err := c.js.Stream(t.Context(), j.snapshots.name)
	if err != nil {
		t.Fatal(err)
	}
	if n := info.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("they take %d messages, want 2", n)
	}
	if err := j.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := snapshots(t, reader, epoch); strings.Join(got, "") != "0123456789" {
		t.Errorf("after Flush: %q", got)
	}
	if got := snapshots(t, reader, epoch.Add(6*time.Second)); strings.Join(got, "") != "6789" {
		t.Errorf("since the sixth: %q, also from the middle of a record", got)
	}
}

func TestReadingSnapshotsIncludesThoseInMemory(t *testing.T) {
	j := journal(t, embedded(t), JournalOptions{})
	if err := j.AppendSnapshot(t.Context(), snapshot(1)); err != nil {
		t.Fatal(err)
	}
	if got := snapshots(t, j, epoch); len(got) != 1 {
		t.Errorf("%d snapshots, want 1", len(got))
	}
}

// hanging is the context of a request that the store does not answer until release is closed.
type hanging struct {
	context.Context
	once             sync.Once
	entered, release chan struct{}
}

// Value is called when the request begins.
func (h *hanging) Value(key any) any {
	if key == (patientKey{}) {
		h.once.Do(func() { close(h.entered); <-h.release })
	}
	return h.Context.Value(key)
}

// TestAReaderDelaysNoDecision reads snapshots, for which those in memory are written first, while the store does not answer. The control
// loop adds snapshots meanwhile. When the write has failed, all are kept, in order.
func TestAReaderDelaysNoDecision(t *testing.T) {
	c := embedded(t)
	j := journal(t, c, JournalOptions{FlushSnapshots: 2})
	w := c.Writer(j, state(t, c), func() bool { return true })
	defer func() { _ = w.Close(t.Context()) }()
	if err := w.AppendSnapshot(t.Context(), snapshot(0)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h := &hanging{Context: ctx, entered: make(chan struct{}), release: make(chan struct{})}
	replies, added := make(chan Reply, 1), make(chan error, 1)
	go func() {
		replies <- historyReply(h, j, []byte(`{"since":"0001-01-01T00:00:00Z","after":0,"snapshots":true}`))
	}()
	receive(t, h.entered)
	for i := range 3 { // more than are written together: they wait for those that were taken before
		go func() { added <- w.AppendSnapshot(t.Context(), snapshot(1+i)) }()
		if err := receive(t, added); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	close(h.release)
	wantWords(t, errorOf(receive(t, replies)), "canceled")
	if got := snapshots(t, j, epoch); strings.Join(got, "") != "0123" {
		t.Errorf("snapshots %q, want all in order", got)
	}
}

func TestLargeSnapshotsAreWrittenAtOnce(t *testing.T) {
	c := embedded(t)
	j := journal(t, c, JournalOptions{})
	big := quell.Snapshot{At: epoch, Service: "video",
		Instances: []quell.Instance{{ID: hex.EncodeToString(noise(1, flushBytes/2)), State: quell.Ready}}}
	if err := j.AppendSnapshot(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	if got := snapshots(t, journal(t, c, JournalOptions{}), epoch); len(got) != 1 {
		t.Errorf("%d snapshots are written, want 1", len(got))
	}
	stream, err := c.js.Stream(t.Context(), j.snapshots.name)
	if err != nil {
		t.Fatal(err)
	}
	if s := stream.CachedInfo().State; s.Msgs < 2 || s.Bytes/s.Msgs > pack.ChunkBytes+pack.HeaderBytes {
		t.Errorf("%d messages of %d bytes together", s.Msgs, s.Bytes)
	}
}

func TestSnapshotsWaitWhileTheBusIsAway(t *testing.T) {
	address, dir := need.FreeAddress(t), t.TempDir()
	ring := &auth.Keyring{Dir: t.TempDir()}
	first := startServer(t, ServerOptions{Listen: address, StoreDir: dir, Keyring: ring})
	c := connect(t, as(first, *ring, auth.Controller, "c"))
	j := journal(t, c, JournalOptions{FlushSnapshots: 1})
	if err := first.Shutdown(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "disconnected", func() bool { return !c.Connected() })
	if err := j.AppendSnapshot(t.Context(), snapshot(0)); !errors.Is(err, ErrNotConnected) {
		t.Errorf("without a bus: %v", err)
	}
	startServer(t, ServerOptions{Listen: address, StoreDir: dir, Keyring: ring})
	eventually(t, "connected again", c.Connected)
	if err := j.AppendSnapshot(t.Context(), snapshot(1)); err != nil {
		t.Fatal(err)
	}
	if got := snapshots(t, journal(t, c, JournalOptions{}), epoch); strings.Join(got, "") != "01" {
		t.Errorf("snapshots %q, want both", got)
	}
}

// crowd is a snapshot of n instances whose numbers compress as well as real ones.
func crowd(i, n int) quell.Snapshot {
	random := rand.New(rand.NewPCG(uint64(i), 9))
	s := quell.Snapshot{At: epoch.Add(time.Duration(i) * time.Second), Service: "video"}
	for k := range n {
		rate, open, mean := 20*random.Float64(), random.Float64(), 30*random.Float64()
		s.Instances = append(s.Instances, quell.Instance{ID: fmt.Sprintf("i%d", k+1), State: quell.Ready, Observation: &quell.Observation{
			At: s.At, WindowS: 1, RequestRate: &rate, InFlight: &open,
			LatencyMS:   &quell.Latency{Mean: &mean, P50: &mean, P90: &mean, P95: &mean, P99: &mean, N: 20},
			Utilization: map[quell.Resource]float64{quell.Network: random.Float64(), quell.CPU: random.Float64()},
			Probe:       map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: random.Float64(), StddevMS: random.Float64(), N: 10}},
		}})
	}
	return s
}

// TestSnapshotsOfACrowdKeepTheBound writes 10,000 observations per second, three of each instance, for longer than
// the journal can hold.
func TestSnapshotsOfACrowdKeepTheBound(t *testing.T) {
	dir := t.TempDir()
	c := connect(t, Options{Server: startServer(t, ServerOptions{StoreDir: dir})})
	j := journal(t, c, JournalOptions{Bytes: leastJournal})
	const seconds = 60
	most := int64(0)
	for i := range seconds {
		if err := j.AppendSnapshot(t.Context(), crowd(i, 3333)); err != nil {
			t.Fatal(err)
		}
		most = max(most, diskUse(t, dir))
	}
	if err := j.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := snapshots(t, j, epoch)
	if most > leastJournal {
		t.Errorf("the store took %d bytes, %d are allowed", most, leastJournal)
	}
	if len(got) == 0 || len(got) == seconds {
		t.Errorf("%d of %d snapshots are there; some must have gone", len(got), seconds)
	}
}
