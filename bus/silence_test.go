package bus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell"
)

// bareServer returns a connection to a server without a store, through which a test answers as one.
func bareServer(t *testing.T) *nats.Conn {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("not ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// TestReadingTheJournalOutlastsAnElection plays a cluster: first it does not answer, then it says that it has no leader,
// and then that there is no journal.
func TestReadingTheJournalOutlastsAnElection(t *testing.T) {
	t.Parallel()
	cluster := bareServer(t)
	var asked atomic.Int64
	_, err := cluster.Subscribe("$JS.API.STREAM.INFO.>", func(m *nats.Msg) {
		switch asked.Add(1) {
		case 1:
		case 2:
			_ = m.Respond([]byte(`{"error": {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}}`))
		default:
			_ = m.Respond([]byte(`{"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}`))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Flush(); err != nil {
		t.Fatal(err)
	}
	j := journal(t, connect(t, Options{URL: cluster.ConnectedUrl()}), JournalOptions{})
	err = j.Read(t.Context(), time.Time{}, func(Entry) error { return nil })
	if !errors.Is(err, quell.ErrNoData) || asked.Load() != 3 {
		t.Errorf("after %d requests: %v", asked.Load(), err)
	}
}

// TestAnAnswerThatIsLostLosesNoEntry plays servers that lose their quorum after they got an entry, refuse the next one for a
// temporary reason, and never accept the third.
func TestAnAnswerThatIsLostLosesNoEntry(t *testing.T) {
	t.Parallel()
	const (
		lost      = ""
		inProcess = `{"error": {"code": 409, "err_code": 10158, "description": "duplicate message id is in process"}}`
		noPeers   = `{"error": {"code": 400, "err_code": 10005, "description": "no suitable peers for placement"}}`
		tooLarge  = `{"error": {"code": 400, "err_code": 10054, "description": "message size exceeds maximum allowed"}}`
		stored    = `{"stream": "quell_plans_shop", "seq": 1}`
	)
	answers := []string{lost, inProcess, inProcess, stored, noPeers, stored, tooLarge}
	cluster := bareServer(t)
	var ids []string
	respond := func(m *nats.Msg, text string) {
		if text != lost {
			_ = m.Respond([]byte(text))
		}
	}
	_, err := cluster.Subscribe("$JS.API.STREAM.*.quell_plans_shop", func(m *nats.Msg) {
		respond(m, `{"config": {"name": "quell_plans_shop"}, "state": {}}`)
	})
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, len(answers))
	_, err = cluster.Subscribe("quell.shop.journal.plans", func(m *nats.Msg) {
		n := len(asked)
		asked <- m.Header.Get(nats.MsgIdHdr)
		respond(m, answers[n])
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Flush(); err != nil {
		t.Fatal(err)
	}
	w, _ := writerOn(t, connect(t, Options{URL: cluster.ConnectedUrl()}))
	for i := range 3 {
		if err := w.Append(t.Context(), event(i)); !errors.Is(err, ErrLater) {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.Close(ctx); err == nil || !strings.HasSuffix(err.Error(), "not stored: 1") {
		t.Errorf("the third entry was lost, and Close says %v", err)
	}
	close(asked)
	for id := range asked {
		ids = append(ids, id)
	}
	if want := []int{4, 2, 1}; !slices.Equal(runs(ids), want) {
		t.Errorf("sent %v times, want %v: %q", runs(ids), want, ids)
	}
}

// runs returns how often each text of a sequence occurs in a row.
func runs(texts []string) (lengths []int) {
	for i, text := range texts {
		if i == 0 || text != texts[i-1] {
			lengths = append(lengths, 0)
		}
		lengths[len(lengths)-1]++
	}
	return lengths
}
