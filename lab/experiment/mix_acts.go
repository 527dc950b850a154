package experiment

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

func readAll(conn net.Conn) (string, error) {
	data, err := io.ReadAll(conn)
	return strings.TrimSpace(string(data)), err
}

// MixAct is something that takes an instance out for a while, other than Quell.
type MixAct struct {
	Act      string    `json:"act"`
	Instance string    `json:"instance"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Seen     bool      `json:"seen"`           // HAProxy sent it no new request meanwhile
	Lost     string    `json:"lost,omitempty"` // why it did not happen
}

// mixAct is an act of each round: from and to are fractions of the round.
type mixAct struct {
	name     string
	instance int // its number
	from, to float64
	begin    string // command to HAProxy, with the instance's id in place of ID; empty: the instance's health check is answered with 404
	end      string
}

// mixActs do not overlap, so that at most one instance is out by them at a time.
var mixActs = []mixAct{
	{"maintenance of the tracked server", 2, 0.05, 0.2, "set server infra/ID state maint", "set server infra/ID state ready"},
	{"drain of the tracked server", 3, 0.25, 0.35, "set server infra/ID state drain", "set server infra/ID state ready"},
	{"soft stop", 4, 0.4, 0.55, "", ""},
	{"weight 0 by hand", 5, 0.6, 0.72, "set server app/ID weight 0", "set server app/ID weight 100"},
	{"soft stop of the tracked server", 1, 0.75, 0.85, "", ""},
	{"drain by hand", 3, 0.88, 0.97, "set server app/ID state drain", "set server app/ID state ready"},
}

// act plays all acts, round after round, and the moments in which the lame instance refuses connections. The result returns the acts after
// ctx has ended.
func (f *mixFleet) act(ctx context.Context) func() []MixAct {
	done := make(chan []MixAct, 1)
	go func() {
		var acts []MixAct
		for began := time.Now(); ctx.Err() == nil; began = began.Add(f.mix.Round) {
			for _, a := range mixActs {
				at := func(part float64) time.Time { return began.Add(time.Duration(part * float64(f.mix.Round))) }
				if pause(ctx, time.Until(at(a.from))) != nil {
					break
				}
				acts = append(acts, f.once(ctx, a, at(a.to)))
			}
			_ = pause(ctx, time.Until(began.Add(f.mix.Round)))
		}
		done <- acts
	}()
	go every(ctx, 15*time.Second, func(time.Time) { f.refuse(ctx) })
	return func() []MixAct { return <-done }
}

// refuse closes the lame instance's port for a moment.
func (f *mixFleet) refuse(ctx context.Context) {
	if in := f.instances[mixLame-1]; in.runs() {
		in.refuse(ctx, 1200*time.Millisecond)
	}
}

// once plays one act until a time.
func (f *mixFleet) once(ctx context.Context, a mixAct, until time.Time) MixAct {
	in := f.instances[a.instance-1]
	done := MixAct{Act: a.name, Instance: in.id, From: time.Now()}
	if !in.runs() {
		done.To, done.Lost = done.From, "the instance was not there"
		return done
	}
	f.hold(in.id, a.name, true)
	if err := f.do(in, a.begin, true); err != nil {
		done.Lost = err.Error()
	}
	for pause(ctx, min(time.Until(until), 500*time.Millisecond)) == nil && time.Now().Before(until) {
		look, err := f.look(time.Now())
		done.Seen = done.Seen || err == nil && look.Weights[in.id] == 0
	}
	if err := f.do(in, a.end, false); err != nil {
		done.Lost = err.Error()
	}
	f.hold(in.id, a.name, false)
	done.To = time.Now()
	return done
}

func (f *mixFleet) do(in *mixInstance, command string, begins bool) error {
	if command == "" {
		in.soft.Store(begins)
		return nil
	}
	answer, err := f.ask(strings.ReplaceAll(command, "ID", in.id))
	if err == nil && answer != "" {
		err = fmt.Errorf("HAProxy answers %q", answer)
	}
	return err
}

// MixLook is which servers HAProxy sends new requests to, and by which weights.
type MixLook struct {
	At      time.Time
	Weights map[string]int
}

// watch looks each second until ctx ends.
func (f *mixFleet) watch(ctx context.Context) func() []MixLook {
	done := make(chan []MixLook, 1)
	go func() {
		var looks []MixLook
		every(ctx, time.Second, func(now time.Time) {
			if look, err := f.look(now); err == nil {
				looks = append(looks, look)
			}
		})
		done <- looks
	}()
	return func() []MixLook { return <-done }
}

// look reads `show stat`.
func (f *mixFleet) look(now time.Time) (MixLook, error) {
	look := MixLook{now, map[string]int{}}
	rows, err := f.stat()
	for _, row := range rows {
		if weight, err := strconv.Atoi(row["weight"]); err == nil && strings.HasPrefix(row["status"], "UP") {
			look.Weights[row["svname"]] = weight
		}
	}
	return look, err
}

// MixCounters are what HAProxy counted at a server.
type MixCounters struct {
	Server     string `json:"server"`
	Requests   int    `json:"requests"`
	Retries    int    `json:"retries"`    // wretr
	Redispatch int    `json:"redispatch"` // wredis
	Refused    int    `json:"refused"`    // hrsp_4xx
	Failed     int    `json:"failed"`     // hrsp_5xx
}

func (f *mixFleet) counters() (list []MixCounters, err error) {
	rows, err := f.stat()
	for _, row := range rows {
		n := func(name string) int { v, _ := strconv.Atoi(row[name]); return v }
		list = append(list, MixCounters{row["svname"], n("stot"), n("wretr"), n("wredis"), n("hrsp_4xx"), n("hrsp_5xx")})
	}
	return list, err
}

// stat returns the rows of the backend's servers.
func (f *mixFleet) stat() (rows []map[string]string, err error) {
	text, err := f.ask("show stat app 4 -1")
	if err != nil {
		return nil, err
	}
	in := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "# ")))
	in.FieldsPerRecord = -1
	records, err := in.ReadAll()
	if err != nil || len(records) == 0 {
		return nil, fmt.Errorf("`show stat` was answered with %q: %w", text, err)
	}
	for _, fields := range records[1:] {
		row := map[string]string{}
		for i, name := range records[0] {
			if i < len(fields) {
				row[name] = fields[i]
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}
