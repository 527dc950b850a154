package outage

import (
	"context"
	"log"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"
)

// quiet is how long a trouble must stay away to be over.
const quiet = 10 * time.Second

// Flood follows a trouble that others can cause as often as they like: bad input, refused connections, requests that fail.
// It logs the first of it, and once it has stayed away for ten seconds how often it came. It is safe for concurrent use.
type Flood struct {
	Logger *slog.Logger
	What   string // as in "requests fail"
	Level  slog.Level

	mu          sync.Mutex
	times       int
	first, last time.Time
}

// Note counts one more. args are the attributes of the line that is logged, should this be the first.
func (f *Flood) Note(args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.times++
	f.last = time.Now()
	if f.times > 1 {
		return
	}
	f.first = f.last
	f.Logger.Log(context.Background(), f.Level, f.What, args...)
	time.AfterFunc(quiet, f.settle)
}

// settle ends the flood, or waits on. What came once only needs no second line.
func (f *Flood) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if rest := quiet - time.Since(f.last); rest > 0 {
		time.AfterFunc(rest, f.settle)
		return
	}
	if f.times > 1 {
		f.Logger.Log(context.Background(), f.Level, f.What+": over", "times", f.times, "lasted", f.last.Sub(f.first).Round(time.Millisecond))
	}
	f.times = 0
}

func (f *Flood) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.times == 0
}

// mostKinds bounds the kinds that are told apart at a time.
const mostKinds = 10

// Kinds is a Flood for each kind of a trouble. Further kinds than ten at a time count as one. It is safe for concurrent use.
type Kinds struct {
	Logger *slog.Logger
	What   string
	Level  slog.Level

	mu    sync.Mutex
	kinds map[string]*Flood
}

// Note counts one more trouble of the kind that its text is of, and logs the first of each kind.
func (k *Kinds) Note(text string) { k.flood(Kind(text)).Note("error", text) }

func (k *Kinds) flood(kind string) *Flood {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.kinds[kind]; f != nil {
		return f
	}
	for known, f := range k.kinds {
		if f.over() {
			delete(k.kinds, known)
		}
	}
	if len(k.kinds) >= mostKinds {
		kind = ""
	}
	if k.kinds[kind] == nil {
		if k.kinds == nil {
			k.kinds = map[string]*Flood{}
		}
		k.kinds[kind] = &Flood{Logger: k.Logger, What: k.What, Level: k.Level}
	}
	return k.kinds[kind]
}

// details is what differs between messages of one kind: quoted words, addresses, numbers.
var details = regexp.MustCompile(`"[^"]*"|[0-9a-fA-F.:\[\]]*[0-9][0-9a-zA-Z.:\[\]]*`)

// longestKind bounds what tells kinds apart, in bytes.
const longestKind = 200

// Kind is a message without what differs between messages of one kind.
func Kind(text string) string {
	return details.ReplaceAllString(text[:min(len(text), longestKind)], "#")
}

// ErrorLog is a log for a library that writes a line for every trouble of its clients, as net/http's servers do. What a
// client does is logged at level debug; that connections cannot be accepted, and panics, are warnings.
func ErrorLog(logger *slog.Logger) *log.Logger {
	return log.New(&lines{
		warnings: Kinds{Logger: logger, What: "serving", Level: slog.LevelWarn},
		noise:    Kinds{Logger: logger, What: "serving a client", Level: slog.LevelDebug},
	}, "", 0)
}

type lines struct{ warnings, noise Kinds }

// longestLine bounds what of a library's line is logged, in bytes: enough for the stack of a panic.
const longestLine = 8 << 10

func (l *lines) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p[:min(len(p), longestLine)]))
	if strings.Contains(text, "Accept error") || strings.Contains(text, "panic") {
		l.warnings.Note(text)
	} else {
		l.noise.Note(text)
	}
	return len(p), nil
}
