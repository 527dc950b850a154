package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/smithy-go/encoding/cbor"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
)

// An agent reports the balance that CloudWatch shows, with what the machine used since then.
func TestAnAgentShowsCredits(t *testing.T) {
	began := time.Now()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
		w.Header().Set("Content-Type", "application/cbor")
		_, _ = w.Write(cbor.Encode(cbor.Map{"Datapoints": cbor.List{cbor.Map{
			"Average": cbor.Float64(28.5), "Timestamp": &cbor.Tag{ID: 1, Value: cbor.Float64(began.Add(-time.Minute).Unix())},
		}}}))
	}))
	defer service.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	folder := t.TempDir()
	busy := func(ticks int) string {
		return fmt.Sprintf("cpu  %[1]d 0 10 %[1]d 0 0 0 0 0 0\ncpu0 %[1]d 0 10 %[1]d 0 0 0 0 0 0\n", ticks)
	}
	writeTree(t, folder, map[string]string{
		"agent.yaml": "agent: {root: machine, instance: m1, policy: {name: waits, sampling: 100ms, groups: [{cgroup: /web}]},\n" +
			"  credits: {kind: cloudwatch, id: i-1, region: eu-west-1, endpoint: '" + service.URL + "'}}\n",
		"machine/proc/stat":                        busy(0),
		"machine/proc/self/mountinfo":              "31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"machine/sys/fs/cgroup/web/cpu.stat":       "usage_usec 5\n",
		"machine/sys/fs/cgroup/cgroup.controllers": "cpu\n",
	})
	path := filepath.Join(folder, "agent.yaml")
	file, _, err := Drivers().LoadLocal(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	log, ended := &loudness{}, make(chan error, 1)
	go func() { ended <- Agent(ctx, path, "", nil, slog.New(slog.NewTextHandler(log, nil))) }()
	var s host.Status
	deadline := time.Now().Add(30 * time.Second)
	for ticks := 1; s.Machine == nil || s.Machine.Credits == nil; ticks++ {
		if time.Now().After(deadline) {
			t.Fatalf("no credits; status %+v\n%s", s, log)
		}
		writeTree(t, folder, map[string]string{"machine/proc/stat": busy(ticks)})
		time.Sleep(20 * time.Millisecond)
		if reply, err := AskAgent(ctx, file); err == nil {
			if err := json.Unmarshal(reply, &s); err != nil {
				t.Fatal(err)
			}
		}
	}
	past := s.Machine.CreditsPast[quell.CPU]
	if s.Machine.Credits[quell.CPU] != 28.5 || past.AgeS < 58 || past.SeenS > past.AgeS {
		t.Errorf("got %v, %+v, want 28.5 of a minute ago", s.Machine.Credits, past)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
