package arena

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"sync"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/lockfile"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/lab/scenario"
)

// Line is one line of results.jsonl: the result of a finished run.
type Line struct {
	Program   string          `json:"program"`         // fingerprint of the program that played the run
	Digest    string          `json:"scenario_digest"` // hash of everything in the scenario except its list of runs
	Candidate Candidate       `json:"entrant"`
	Result    scenario.Result `json:"result"`
}

// digest is a hash of everything in a scenario that a run depends on, so that changes of the scenario are noticed.
func digest(sc *scenario.Scenario) (string, error) {
	plain := *sc
	plain.Runs = nil
	data, err := json.Marshal(plain)
	if err != nil {
		return "", fmt.Errorf("scenario %s: %w", sc.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// store keeps the results in an arena's folder. It writes each result when the run has finished, so that an interrupted arena can
// continue.
type store struct {
	path    string
	program string
	file    *os.File

	mu   sync.Mutex // guards what follows
	done map[play]scenario.Result
}

// play identifies one run: scenario, candidate and seed.
type play struct {
	scenario  string
	candidate Candidate
	seed      uint64
}

const resultsFile = "results.jsonl"

// openStore locks the folder for this arena and reads the results that an earlier arena left there. If the last line was cut short, it is
// dropped. digests has the present digest of each scenario, by name. If the folder has results with another digest, or of another program,
// the error is a *quell.UserError.
func openStore(dir, program string, digests map[string]string) (*store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the arena's folder: %w", err)
	}
	s := &store{path: filepath.Join(dir, resultsFile), program: program, done: map[play]scenario.Result{}}
	var err error
	if s.file, err = os.OpenFile(s.path, os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, fmt.Errorf("opening the results: %w", err)
	}
	if err := s.read(dir, digests); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

func (s *store) read(dir string, digests map[string]string) error {
	err := lockfile.Hold(s.file)
	if errors.Is(err, lockfile.ErrHeld) {
		return &quell.UserError{Err: fmt.Errorf("another arena is writing to %s: wait for it, or name another folder with --out", dir)}
	}
	if err != nil {
		return fmt.Errorf("taking the results: %w", err)
	}
	data, err := io.ReadAll(s.file)
	if err != nil {
		return fmt.Errorf("reading earlier results: %w", err)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	number := 0
	for text := range bytes.Lines(whole) {
		number++
		if err := s.take(text, digests); err != nil {
			return &quell.UserError{Err: fmt.Errorf("%s:%d: %w: name another folder with --out, or remove this file", s.path, number, err)}
		}
	}
	if err := errors.Join(s.file.Truncate(int64(len(whole))), seekTo(s.file, int64(len(whole)))); err != nil {
		return fmt.Errorf("opening the results: %w", err)
	}
	return nil
}

func seekTo(f *os.File, at int64) error {
	_, err := f.Seek(at, 0)
	return err
}

func (s *store) take(text []byte, digests map[string]string) error {
	var l Line
	if err := strictjson.Decode(bytes.TrimSpace(text), &l); err != nil {
		return fmt.Errorf("not a result: %w", err)
	}
	if l.Program != s.program {
		return errors.New("a result of another build of this program")
	}
	if present, ok := digests[l.Result.Scenario]; ok && present != l.Digest {
		return fmt.Errorf("a result of another version of scenario %s", l.Result.Scenario)
	}
	p := play{l.Result.Scenario, l.Candidate, l.Result.Seed}
	if before, twice := s.done[p]; twice && !reflect.DeepEqual(before, l.Result) {
		return fmt.Errorf("a second result for %s in %s with seed %d, which contradicts the first", p.candidate.Title(), p.scenario, p.seed)
	}
	s.done[p] = l.Result
	return nil
}

// add writes a result to the file.
func (s *store) add(p play, digest string, r scenario.Result) error {
	data, err := json.Marshal(Line{s.program, digest, p.candidate, r})
	if err != nil {
		return fmt.Errorf("encoding a result: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.file.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("writing a result: %w", err)
	}
	s.done[p] = r
	return nil
}

func (s *store) result(p play) (scenario.Result, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.done[p]
	return r, ok
}

func (s *store) close() error { return s.file.Close() }
