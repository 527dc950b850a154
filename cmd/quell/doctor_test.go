package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// writtenJournal is a journal with these entries.
type writtenJournal []bus.Entry

func (j writtenJournal) Read(_ context.Context, _ time.Time, fn func(bus.Entry) error) error {
	for _, e := range j {
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

func (writtenJournal) ReadSnapshots(context.Context, time.Time, func(quell.Snapshot) error) error {
	return nil
}

// An archive has the newest entries of a journal that is too long, without gaps, and says that older ones are missing.
func TestAnArchiveHasTheNewestEntries(t *testing.T) {
	const all, size = 100, 200 << 10
	var j writtenJournal
	for i := range all {
		text := strings.Repeat("x", size)
		if i%2 == 1 {
			text = "a small one"
		}
		j = append(j, bus.Entry{Seq: uint64(i + 1), Kind: bus.EventEntry, Text: text})
	}
	var x examination
	if err := x.read(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	var seqs []uint64
	for line := range bytes.Lines(x.journal) {
		var e bus.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, e.Seq)
	}
	first := all - uint64(len(seqs)) + 1
	for i, seq := range seqs {
		if seq != first+uint64(i) {
			t.Fatalf("entries %v", seqs)
		}
	}
	if n := len(x.journal); n > mostJournal || n < mostJournal-2*size || len(seqs) == all {
		t.Errorf("%d bytes, %d entries", n, len(seqs))
	}
	if len(x.missing) != 1 || !strings.Contains(x.missing[0], "journal of the controller: the oldest ") {
		t.Errorf("missing: %q", x.missing)
	}
	var short examination
	if err := short.read(t.Context(), j[:3]); err != nil || len(short.missing) > 0 || bytes.Count(short.journal, []byte("\n")) != 3 {
		t.Errorf("%d bytes, missing %q, %v", len(short.journal), short.missing, err)
	}
}
