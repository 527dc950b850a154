package profile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Log follows the log of a server or a balancer, and takes response times from its lines. It is a Latencies.
type Log struct {
	path    string
	pattern *regexp.Regexp
	file    *os.File
	in      *bufio.Reader
	rest    string // of a line that is not complete yet
}

// The groups of a log's pattern: a response time in milliseconds or in seconds; or the bytes of an answer and how many KiB were sent per
// second. A pattern may have a group failed, which is not empty in lines about failed requests.
var logGroups = []string{"ms", "seconds", "bytes", "kib_s", "failed"}

// longestLine is the longest line of a log, in bytes.
const longestLine = 1 << 20

// Follow opens a log at its end. The pattern is a regular expression with named groups (RE2).
func Follow(path, pattern string) (*Log, error) {
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("the pattern of the log: %w", err)
	}
	has := func(group string) bool { return compiled.SubexpIndex(group) >= 0 }
	if !has("ms") && !has("seconds") && !(has("bytes") && has("kib_s")) {
		return nil, fmt.Errorf("the pattern of the log names no response time: give it a group (?P<ms>...), (?P<seconds>...), or " +
			"(?P<bytes>...) and (?P<kib_s>...)")
	}
	l := &Log{path: path, pattern: compiled}
	if err := l.open(); err != nil {
		return nil, err
	}
	_, err = l.file.Seek(0, io.SeekEnd)
	return l, err
}

func (l *Log) open() (err error) {
	if l.file, err = os.Open(l.path); err != nil {
		return err
	}
	l.in, l.rest = bufio.NewReader(l.file), ""
	return nil
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Take implements Latencies. A log that was replaced or cut is read from its beginning.
func (l *Log) Take() (ms []float64, failed int, err error) {
	if ms, failed, err = l.read(nil, 0); err != nil {
		return nil, 0, err
	}
	replaced, err := l.replaced()
	if err != nil || !replaced {
		return ms, failed, err
	}
	if err := errors.Join(l.file.Close(), l.open()); err != nil {
		return nil, 0, err
	}
	return l.read(ms, failed)
}

// replaced returns whether the path names another file now, or the file became shorter. A log that is being replaced may be missing for a
// moment.
func (l *Log) replaced() (bool, error) {
	now, err := os.Stat(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	was, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	at, err := l.file.Seek(0, io.SeekCurrent)
	return !os.SameFile(was, now) || now.Size() < at, err
}

// read reads to the end.
func (l *Log) read(ms []float64, failed int) ([]float64, int, error) {
	for {
		part, err := l.in.ReadString('\n')
		l.rest += part
		if len(l.rest) > longestLine {
			return nil, 0, fmt.Errorf("%s has a line of more than %d bytes: it is no log", l.path, longestLine)
		}
		if errors.Is(err, io.EOF) {
			return ms, failed, nil
		}
		if err != nil {
			return nil, 0, err
		}
		took, ok, bad := l.parse(strings.TrimSuffix(l.rest, "\n"))
		l.rest = ""
		if bad {
			failed++
		} else if ok {
			ms = append(ms, took)
		}
	}
}

// parse returns the response time in a line; ok is false if there is none, and failed is true if the line is about a failed request.
func (l *Log) parse(line string) (ms float64, ok, failed bool) {
	found := l.pattern.FindStringSubmatch(line)
	if found == nil {
		return 0, false, false
	}
	values := map[string]float64{}
	for _, group := range logGroups {
		i := l.pattern.SubexpIndex(group)
		if i < 0 || found[i] == "" {
			continue
		}
		if group == "failed" {
			return 0, false, true
		}
		v, err := strconv.ParseFloat(found[i], 64)
		if err != nil || !(v >= 0 && v < 1e12) {
			return 0, false, false
		}
		values[group] = v
	}
	if v, given := values["ms"]; given {
		return v, v > 0, false
	}
	if v, given := values["seconds"]; given {
		return 1000 * v, v > 0, false
	}
	if bytes, rate := values["bytes"], values["kib_s"]; bytes > 0 && rate > 0 {
		return bytes / 1024 / rate * 1000, true, false
	}
	return 0, false, false
}
