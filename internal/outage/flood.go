package outage

import (
	"context"
	"log"
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"
)

// quiet is how long an error must not have occurred before it counts as over.
const quiet = 10 * time.Second

// Flood logs an error that others can cause as often as they like, such as bad input, refused connections or failing requests. It
// logs the first error and, when none has occurred for ten seconds, how many there were. It is safe for concurrent use.
type Flood struct {
	Logger *slog.Logger
	What   string // as in "requests fail"
	Level  slog.Level

	mu          sync.Mutex
	times       int
	first, last time.Time
}

// Note counts one more error. args are the attributes of the log line if this error is the first.
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

// settle ends the flood, or keeps waiting. An error that occurred only once gets no second line.
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

// mostKinds is the largest number of kinds of errors that are counted separately at a time.
const mostKinds = 10

// Kinds is a Flood for each kind of an error. Kinds beyond ten at a time are counted together. It is safe for concurrent use.
type Kinds struct {
	Logger *slog.Logger
	What   string
	Level  slog.Level

	mu    sync.Mutex
	kinds map[string]*Flood
}

// Note counts one more error, of the kind that follows from its text, and logs the first of each kind.
func (k *Kinds) Note(text string) { k.flood(Kind(text)).Note("error", text) }

func (k *Kinds) flood(kind string) *Flood {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.kinds[kind]; f != nil {
		return f
	}
	maps.DeleteFunc(k.kinds, func(_ string, f *Flood) bool { return f.over() })
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

// longestKind is how many bytes of a message are compared to distinguish kinds.
const longestKind = 200

// Kind is a message without the details that differ between messages of one kind.
func Kind(text string) string {
	return details.ReplaceAllString(text[:min(len(text), longestKind)], "#")
}

// ErrorLog is a log for a library that writes a line for every error of its clients, such as net/http's servers. What a
// client causes is logged at level debug; failures to accept connections, and panics, are warnings.
func ErrorLog(logger *slog.Logger) *log.Logger {
	return log.New(&lines{
		warnings: Kinds{Logger: logger, What: "serving", Level: slog.LevelWarn},
		noise:    Kinds{Logger: logger, What: "serving a client", Level: slog.LevelDebug},
	}, "", 0)
}

type lines struct{ warnings, noise Kinds }

// longestLine is how many bytes of a library's line are logged: enough for the stack of a panic.
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
