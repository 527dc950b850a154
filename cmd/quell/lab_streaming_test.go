package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/quellhq/quell/lab/experiment"
)

// TestLabStreaming measures a few frame delays with real programs. How long the delays are depends on the machine.
func TestLabStreaming(t *testing.T) {
	l := prepareLab(t, "st", "work", []string{"haproxy", "stress-ng"})
	l.cmd.Args = []string{"quell", "lab", "streaming", "streaming", "--prefix", l.prefix, "--out", l.out,
		"--workers", "1,4", "--weights", "100,50", "--streams", "4", "--warm-up", "200ms", "--run", "1s"}
	if err := l.cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, l.said)
	}
	data, err := os.ReadFile(filepath.Join(l.out, "streaming", "streaming.json"))
	if err != nil {
		t.Fatal(err)
	}
	var results []experiment.StreamResult
	if err := json.Unmarshal(data, &results); err != nil {
		t.Fatal(err)
	}
	if n := len(results); n < 5 || n > 6 { // the best number of workers may be the same with and without the neighbour
		t.Errorf("%d cells: %s", n, l.said)
	}
	for _, r := range results {
		if r.Frames == 0 || r.DelayMS.N == 0 || r.Others.N == 0 {
			t.Errorf("no frames: %+v", r)
		}
		if r.Weight == 100 && r.Streams != 4 || r.Weight == 50 && (r.Streams < 2 || r.Streams > 3) {
			t.Errorf("%d of 8 streams at weight %d beside one of 100", r.Streams, r.Weight)
		}
	}
	l.clean(false)
}

// TestLabThreads plays a streaming server beside a neighbour for some seconds, once with a controller and agents. What ICE does in so
// short a time depends on the machine, so only its parts are checked: agents report, frames come, and the numbers of workers are known.
func TestLabThreads(t *testing.T) {
	l := prepareLab(t, "sh", "work", []string{"haproxy", "stress-ng"})
	l.cmd.Args = []string{"quell", "lab", "streaming", "streaming", "--prefix", l.prefix, "--out", l.out,
		"--threads", "--workers", "3", "--streams", "4", "--beside", "2s"}
	if err := l.cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, l.said)
	}
	data, err := os.ReadFile(filepath.Join(l.out, "streaming", "threads.json"))
	if err != nil {
		t.Fatal(err)
	}
	var results []experiment.ThreadResult
	if err := json.Unmarshal(data, &results); err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 || !results[0].ICE || results[1].ICE {
		t.Fatalf("%+v", results)
	}
	for _, r := range results {
		if r.Before.N == 0 || r.Early.N == 0 || r.Late.N == 0 || r.After.N == 0 || len(r.Counts) == 0 || r.Counts[0].Workers != 3 {
			t.Errorf("%+v", r)
		}
	}
	l.clean(false)
}
