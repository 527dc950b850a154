package kernel

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

// Every program uses what it is for, within its quota, ends when it is told to, and leaves nothing.
func TestPrograms(t *testing.T) {
	need.Root(t)
	const cores, strength = 0.5, 0.6
	for _, p := range Programs {
		t.Run(string(p), func(t *testing.T) {
			if err := CheckProgram(p); err != nil {
				need.Skip(t, err.Error())
			}
			host := Host{ID: "h1", Cores: cores, Network: 100e6}
			if p == Sort || p == Pgbench {
				if err := CheckDisk(t.TempDir()); err != nil {
					need.Skip(t, err.Error())
				}
				host.DiskIOPS = 2000
			}
			l := newLab(t, Options{Hosts: []Host{host}, Programs: []Program{p}, DiskWrites: true})
			m := l.Machine("h1")
			for range 2 { // the second call changes nothing
				if err := m.Run(map[Program]float64{p: strength}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			_, cpu, err := m.CPUCarried()
			if err != nil {
				t.Fatal(err)
			}
			_, network, errNetwork := m.Carried()
			_, disk, errDisk := m.DiskCarried()
			t.Logf("after a second: cpu %.2f s, network %.2f s, disk %.2f s", cpu, network, disk)
			if errNetwork != nil || errDisk != nil || !(cpu > 0) {
				t.Errorf("used nothing: %v, %v, %v", cpu, errNetwork, errDisk)
			}
			if p == KeyValue && !(network > 0.05) || host.DiskIOPS > 0 && !(disk > 0) {
				t.Errorf("network %.3f s, disk %.3f s", network, disk)
			}
			if err := m.Run(nil); err != nil {
				t.Fatal(err)
			}
			for _, folder := range l.groups.foldersOf(filepath.Join(base(l.options.Prefix), "h1", programGroup)) {
				if left, err := members(folder); err != nil || len(left) > 0 {
					t.Errorf("processes %v are left, %v", left, err)
				}
			}
			if err := m.Run(map[Program]float64{p: 1}); err != nil {
				t.Errorf("a second time: %v", err)
			}
		})
	}
}

func TestProgramMistakes(t *testing.T) {
	l := newLab(t, Options{Hosts: []Host{{ID: "h1"}}, Programs: []Program{Sort}})
	m := l.Machine("h1")
	for want, strengths := range map[string]map[Program]float64{
		"without the program": {Compile: 1}, "give 0 to 1": {Sort: math.NaN()}, "at a strength of 2": {Sort: 2},
	} {
		if err := m.Run(strengths); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", strengths, err)
		}
	}
	if err := CheckProgram("tetris"); err == nil {
		t.Error("neighbours run a program that does not exist")
	}
}

// A program that ends by itself is reported once, and the next call starts it again.
func TestProgramThatEnds(t *testing.T) {
	need.Program(t, "gcc")
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Cores: 0.5}}, Programs: []Program{Compile}})
	m, on := l.Machine("h1"), map[Program]float64{Compile: 0.5}
	if err := m.Run(on); err != nil {
		t.Fatal(err)
	}
	p := m.running[Compile].programs[0]
	_ = p.cmd.Process.Kill()
	if !p.ended(patience) {
		t.Fatal("a killed program runs on")
	}
	if err := m.Run(on); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("got %v", err)
	}
	if err := m.Run(on); err != nil {
		t.Errorf("not started again: %v", err)
	}
}
