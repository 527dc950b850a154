// Package demand is the server's side of the requests of classes that package loadgen makes: it parses the work that a query asks for,
// and makes answers of an exact size.
package demand

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/quellhq/quell"
)

// Demand is what one request needs of a machine, as in /work?class=home&cpu=5000us&disk=2&memory=300us&bytes=1000. What the query leaves
// out is zero.
type Demand struct {
	CPU    time.Duration // on one core
	Disk   int64         // operations
	Memory time.Duration // of the reference machine's memory bandwidth
	Bytes  int64         // of the answer
}

// The largest amounts that one request may ask for.
const (
	MostTime  = time.Minute // of processor or memory
	MostDisk  = 100_000
	mostBytes = 1 << 40
)

// Of parses a query. If an amount is not a number or out of bounds, the error is a *quell.InvalidError whose path is the amount's key.
func Of(query url.Values) (d Demand, err error) {
	for _, span := range []struct {
		key string
		to  *time.Duration
	}{{"cpu", &d.CPU}, {"memory", &d.Memory}} {
		text := query.Get(span.key)
		if text == "" {
			continue
		}
		if *span.to, err = time.ParseDuration(text); err != nil || *span.to < 0 || *span.to > MostTime {
			return Demand{}, refuse(span.key, text, "a time from 0 to %v, as in %s=5ms", MostTime, span.key)
		}
	}
	for _, count := range []struct {
		key  string
		most int64
		to   *int64
	}{{"disk", MostDisk, &d.Disk}, {"bytes", mostBytes, &d.Bytes}} {
		text := query.Get(count.key)
		if text == "" {
			continue
		}
		if *count.to, err = strconv.ParseInt(text, 10, 64); err != nil || *count.to < 0 || *count.to > count.most {
			return Demand{}, refuse(count.key, text, "a whole number from 0 to %d, as in %s=2", count.most, count.key)
		}
	}
	return d, nil
}

func refuse(key, text, format string, args ...any) error {
	return &quell.InvalidError{Path: key, Problem: fmt.Sprintf("%q: give "+format, append([]any{text}, args...)...)}
}

// block is the length after which the content of answers repeats, which limits the memory of large answers.
const block = 256 << 10

// Content makes answers. Equal lengths give equal bytes.
type Content struct{ block []byte }

// NewContent prepares the bytes of answers.
func NewContent() *Content {
	c := &Content{block: make([]byte, block)}
	for i := range c.block {
		c.block[i] = Byte(int64(i))
	}
	return c
}

// Byte returns the byte at an offset of an answer's content.
func Byte(offset int64) byte { return byte(offset % block * 31 >> 3) }

// Serve answers with this many bytes.
func (c *Content) Serve(w http.ResponseWriter, r *http.Request, bytes int64) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(bytes, 10))
	if r.Method == http.MethodHead {
		return
	}
	for left := bytes; left > 0; {
		n, err := w.Write(c.block[:min(left, int64(len(c.block)))])
		if err != nil {
			return // the client has gone, or the machine is ending
		}
		left -= int64(n)
	}
}
