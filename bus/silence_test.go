package bus

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell"
)

// TestReadingTheJournalOutlastsAnElection answers for a cluster: at first not at all, then that it has no leader, and then
// that there is no journal.
func TestReadingTheJournalOutlastsAnElection(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("not ready")
	}
	cluster, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	var asked atomic.Int64
	_, err = cluster.Subscribe("$JS.API.STREAM.INFO.>", func(m *nats.Msg) {
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
	j := journal(t, connect(t, Options{URL: s.ClientURL()}), JournalOptions{})
	err = j.Read(t.Context(), time.Time{}, func(Entry) error { return nil })
	if !errors.Is(err, quell.ErrNoData) || asked.Load() != 3 {
		t.Errorf("after %d requests: %v", asked.Load(), err)
	}
}
