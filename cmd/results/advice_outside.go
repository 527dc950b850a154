package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
)

// outsideData is what was found from outside on real machines.
type outsideData struct {
	Measured string        `json:"measured"` // the machine
	Looks    []outsideLook `json:"looks"`
}

// outsideLook is one run of `quell init --agentless`, which remembers nothing of earlier ones, while a neighbour comes.
type outsideLook struct {
	Beside string         `json:"beside"` // the server beside which the neighbour is
	True   float64        `json:"true"`   // the part of the link that its receiver counted
	Named  []outsideNamed `json:"named"`  // servers that were said to be slowed: the first time before the neighbour came, and after
	AtEnd  []string       `json:"at_end"` // those of the conclusion
}

// outsideNamed is a server that was said to be slowed.
type outsideNamed struct {
	Server string  `json:"server"`
	AfterS float64 `json:"after_s"` // since the neighbour came; negative: before
}

// Found returns whether the right server was named while it had a neighbour.
func (l outsideLook) Found() bool { return l.FoundS() >= 0 }

// FoundS is when the right server was named, in seconds since the neighbour came; negative: never.
func (l outsideLook) FoundS() float64 {
	for _, n := range l.Named {
		if n.Server == l.Beside && n.AfterS >= 0 {
			return n.AfterS
		}
	}
	return -1
}

// Wrong lists servers that were named without a neighbour.
func (l outsideLook) Wrong() (servers []string) {
	for _, n := range l.Named {
		if n.Server != l.Beside || n.AfterS < 0 {
			servers = append(servers, n.Server)
		}
	}
	return servers
}

// Ends returns whether the conclusion names exactly the right server.
func (l outsideLook) Ends() bool { return slices.Equal(l.AtEnd, []string{l.Beside}) }

// Times of a look.
const (
	outsideLooks  = 10
	outsidePeriod = 2500 * time.Millisecond
	outsideLasts  = 65 * time.Second
	outsideComes  = 30 * time.Second // and up to five seconds more
)

// playOutside looks ten times at HAProxy and nginx as they run on a stranger's machines, with nothing of Quell on the servers.
func playOutside(ctx context.Context, d *adviceData) (err error) {
	set := frontsSettings()
	f, err := newStrangerFleet(filepath.Join("bin", "quell"), haproxyFront, set)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := errors.Join(f.serve(), f.awaitFront(ctx)); err != nil {
		return err
	}
	var load strangerLoad
	stop := f.startUsers(ctx, &load)
	defer stop()
	next := outsideData{Measured: here().Machine}
	rng := rand.New(rand.NewPCG(adviceFirstSeed, 46))
	for range outsideLooks {
		n, use, comes := rng.IntN(len(f.names)), 0.3+0.3*rng.Float64(), outsideComes+time.Duration(5*rng.Float64()*float64(time.Second))
		look, err := f.lookFromOutside(ctx, n, use, comes)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "advice: from outside: %+v\n", look)
		next.Looks = append(next.Looks, look)
	}
	d.Outside = &next
	return nil
}

// lookFromOutside runs the command as a new user would. A neighbour comes beside the n-th server and stays until the command ends.
func (f *strangerFleet) lookFromOutside(ctx context.Context, n int, use float64, comes time.Duration) (l outsideLook, err error) {
	said := &saidLines{}
	c := exec.CommandContext(ctx, f.program, "init", f.socket(), "--agentless", "--path", "/file", "--period", outsidePeriod.String(),
		"--for", outsideLasts.String())
	c.Stdout, c.Stderr = said, os.Stderr
	if err := f.edge.Start(c); err != nil {
		return l, err
	}
	machine := f.lab.Machine(hostOf(n))
	err = wait(ctx, comes)
	before, came := 0.0, time.Now()
	if err == nil {
		_, before, err = machine.Carried()
	}
	if err == nil {
		err = machine.Interfere(map[quell.Resource]float64{quell.Network: use})
	}
	ended := c.Wait()
	stayed := time.Since(came)
	_, after, failed := machine.Carried()
	if err := errors.Join(err, ended, failed, machine.Interfere(nil)); err != nil {
		return l, fmt.Errorf("quell init --agentless: %w", err)
	}
	l = said.look(came)
	l.Beside, l.True = f.names[n], (after-before)/stayed.Seconds()
	return l, wait(ctx, 3*time.Second)
}

// saidLines keeps what a command says, with the time of each line.
type saidLines struct {
	mu      sync.Mutex
	pending []byte
	lines   []saidLine
}

type saidLine struct {
	at   time.Time
	text string
}

func (s *saidLines) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, data...)
	for {
		line, rest, whole := bytes.Cut(s.pending, []byte("\n"))
		if !whole {
			return len(data), nil
		}
		s.lines, s.pending = append(s.lines, saidLine{time.Now(), string(line)}), rest
	}
}

// look reads the lines of `quell init --agentless`: changes begin with the time of day, and the conclusion follows an empty line.
func (s *saidLines) look(came time.Time) (l outsideLook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ends := false
	l.Named, l.AtEnd = []outsideNamed{}, []string{}
	for _, line := range s.lines {
		if line.text == "" {
			ends = true
		}
		head, _, slowed := strings.Cut(line.text, ": slowed by ")
		if !slowed {
			continue
		}
		words := strings.Fields(head)
		server := words[len(words)-1]
		if ends {
			l.AtEnd = append(l.AtEnd, server)
			continue
		}
		after := line.at.Sub(came).Seconds()
		if !slices.ContainsFunc(l.Named, func(n outsideNamed) bool { return n.Server == server && n.AfterS < 0 == (after < 0) }) {
			l.Named = append(l.Named, outsideNamed{server, after})
		}
	}
	return l
}
