package process

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSlotsRotate(t *testing.T) {
	l := newLedger()
	now := time.Unix(0, 0)
	reserve := func() *record {
		r, ok := l.reserve("i", 3, now)
		if !ok {
			t.Fatal("no slot")
		}
		return r
	}
	a, b := reserve(), reserve()
	l.exit(b, now)
	l.exit(a, now)
	var slots []int
	for range 3 {
		slots = append(slots, reserve().Slot)
	}
	if want := []int{3, 2, 1}; !slices.Equal(slots, want) {
		t.Errorf("slots = %v: the one never used comes first, then the one freed first: %v", slots, want)
	}
	if _, ok := l.reserve("i", 3, now); ok {
		t.Error("a fourth instance in three slots")
	}
}

func TestCancelTakesBackAllButTheID(t *testing.T) {
	l := newLedger()
	first, _ := l.reserve("i", 3, time.Unix(0, 0))
	l.exit(first, time.Unix(9, 0))
	freed := l.FreedSlots
	r, _ := l.reserve("i", 1, time.Unix(9, 0))
	l.cancel(r, freed)
	if !slices.Equal(l.FreedSlots, []int{1}) || l.find(r.ID) != nil || l.Next != 3 {
		t.Errorf("ledger = %+v", l)
	}
}

// No two instances ever have the same slot, and no id is used twice.
func TestLedgerHoldsItsRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots = 3
		l := newLedger()
		now := time.Unix(1000, 0)
		ids := map[string]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				r, ok := l.reserve("i", slots, now)
				if !ok {
					if len(runningIn(l)) < slots {
						t.Fatal("refused though a slot is free")
					}
					t.Skip("full")
				}
				if ids[r.ID] || !l.issued("i", r.ID) {
					t.Fatalf("id %s", r.ID)
				}
				ids[r.ID] = true
			},
			"exit": func(t *rapid.T) {
				if rs := runningIn(l); len(rs) > 0 {
					l.exit(rapid.SampledFrom(rs).Draw(t, "instance"), now)
				}
			},
			"forget": func(t *rapid.T) {
				rs := slices.DeleteFunc(slices.Clone(l.Instances), func(r *record) bool { return r.Exited == nil })
				if len(rs) > 0 {
					l.remove(rapid.SampledFrom(rs).Draw(t, "instance"))
				}
			},
			"wait": func(t *rapid.T) {
				s := rapid.IntRange(0, 100).Draw(t, "seconds")
				now = now.Add(time.Duration(s) * time.Second)
			},
			"": func(t *rapid.T) {
				taken := map[int]bool{}
				for _, r := range runningIn(l) {
					if taken[r.Slot] || r.Slot < 1 || r.Slot > slots {
						t.Fatalf("slot %d of %s", r.Slot, r.ID)
					}
					taken[r.Slot] = true
				}
			},
		})
	})
}

func runningIn(l *ledger) []*record {
	return slices.DeleteFunc(slices.Clone(l.Instances), func(r *record) bool { return r.Exited != nil })
}

func TestIssued(t *testing.T) {
	l := &ledger{Next: 12}
	for id, want := range map[string]bool{
		"i1": true, "i11": true, "i12": false, "i0": false, "i-1": false, "i01": false, "i": false, "j1": false, "i1x": false,
	} {
		if got := l.issued("i", id); got != want {
			t.Errorf("issued(%q) = %v", id, got)
		}
	}
}

const sampleLedger = `{
  "format": "quell-instances/1",
  "next": 3,
  "freed_slots": [
    2
  ],
  "instances": [
    {
      "id": "i2",
      "pid": 4711,
      "process_start": "boot/815",
      "slot": 1,
      "port": 8001,
      "started": "2026-01-01T00:00:00Z"
    }
  ]
}
`

func TestLedgerRoundTrip(t *testing.T) {
	l, err := decodeLedger([]byte(sampleLedger))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := l.encode(); string(data) != sampleLedger {
		t.Errorf("written back as %s, %v", data, err)
	}
}

// Earlier versions kept the cost of ended instances here.
func TestLedgerOfAnEarlierVersion(t *testing.T) {
	l, err := decodeLedger([]byte(strings.Replace(sampleLedger, `"next": 3,`, `"next": 3, "exited_seconds": 12.5,`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := l.encode(); string(data) != sampleLedger {
		t.Errorf("written back as %s, %v", data, err)
	}
}

func TestLedgerRefuses(t *testing.T) {
	for old, bad := range map[string]string{
		`"pid": 4711`:                       `"pid": 1`,
		`"pid": 4711,`:                      `"pid": -1,`,
		`"process_start": "boot/815"`:       `"process_start": ""`,
		`"id": "i2"`:                        `"id": "../i2"`,
		`"slot": 1`:                         `"slot": 0`,
		`"port": 8001`:                      `"port": 80010`,
		`"started": "2026-01-01T00:00:00Z"`: `"started": "0001-01-01T00:00:00Z"`,
		`"next": 3`:                         `"next": 0`,
		`"freed_slots"`:                     `"freedslots"`,
		"\n}\n":                             "\n}{}\n",
	} {
		text := strings.Replace(sampleLedger, old, bad, 1)
		if text == sampleLedger {
			t.Fatalf("%q does not occur", old)
		}
		if _, err := decodeLedger([]byte(text)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func FuzzDecodeLedger(f *testing.F) {
	f.Add([]byte(sampleLedger))
	f.Add([]byte(`{"format":"quell-instances/1","next":1,"instances":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := decodeLedger(data)
		if err != nil {
			return
		}
		for _, r := range l.Instances {
			if r.PID == 1 || r.PID < 0 {
				t.Fatalf("pid %d was accepted", r.PID)
			}
		}
		again, err := l.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeLedger(again); err != nil {
			t.Fatalf("what it writes it does not read: %v\n%s", err, again)
		}
	})
}

func TestPickPorts(t *testing.T) {
	free, err := pickPorts(5, PortRange{}, nil)
	if err != nil || len(free) != 5 || len(slices.Compact(slices.Sorted(slices.Values(free)))) != 5 {
		t.Fatalf("ports %v, %v", free, err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := portOf(t, taken)
	only := PortRange{p, p}
	if got, err := pickPorts(1, only, nil); err == nil || !strings.Contains(err.Error(), only.String()) {
		t.Errorf("a port that somebody listens on: %v, %v", got, err)
	}
	taken.Close()
	if got, err := pickPorts(1, only, map[int]bool{p: true}); err == nil {
		t.Errorf("a port of an instance that does not listen yet: %v", got)
	}
	if got, err := pickPorts(1, only, nil); err != nil || got[0] != p {
		t.Errorf("the only port, free: %v, %v", got, err)
	}
}

func portOf(t *testing.T, l net.Listener) int {
	t.Helper()
	_, text, _ := net.SplitHostPort(l.Addr().String())
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestLogIsCutAndGoesOn(t *testing.T) {
	f := &folder{dir: t.TempDir()}
	log, err := f.openLog("i1")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	log.WriteString("0123456789")
	if err := f.cutLog("i1", 10); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.log("i1") + ".1"); err == nil {
		t.Error("cut though within its limit")
	}
	log.WriteString("abc")
	if err := f.cutLog("i1", 10); err != nil {
		t.Fatal(err)
	}
	log.WriteString("new") // the instance holds the same descriptor
	old, _ := os.ReadFile(f.log("i1") + ".1")
	now, _ := os.ReadFile(f.log("i1"))
	if string(old) != "3456789abc" || string(now) != "new" {
		t.Errorf("old %q, now %q", old, now)
	}
}

func TestOldLogsGo(t *testing.T) {
	f := &folder{dir: t.TempDir()}
	const extra = 5
	for i := 1; i <= keptLogs+extra; i++ {
		name := f.log("i" + strconv.Itoa(i))
		at := time.Unix(int64(1000+i), 0)
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.pruneLogs(func(id string) bool { return id == "i1" }); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(f.dir, "*.log"))
	if len(left) != keptLogs+1 || !slices.Contains(left, f.log("i1")) || slices.Contains(left, f.log("i2")) {
		t.Errorf("%d logs are left: %v", len(left), left)
	}
}
