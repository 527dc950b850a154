// Package histogram checks encoded histograms before they are decoded.
package histogram

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"
)

// mostCounts is how many counters a histogram in a reading may have. That many take 256 KiB when decoded. A histogram of
// values in microseconds up to one day with three significant digits has 29,000 counters.
const mostCounts = 32 << 10

// Offsets in an encoded histogram (HdrHistogram V2, compressed). The encoding is base64 of two 32-bit numbers, a cookie and the
// length of the rest. The rest is deflated and begins with a header: cookie, length, offset and significant digits (32 bits
// each), lowest and highest value (64 bits each), ratio.
const (
	outerHeader   = 8
	innerHeader   = 40
	figuresAt     = 12
	lowestAt      = 16
	highestAt     = 24
	mostFigures   = 5
	largestLowest = 1 << 40 // with a larger lowest value the number of buckets overflows
)

// inflaters are reused: a new one takes 40 KB.
var inflaters = sync.Pool{New: func() any { return new(inflater) }}

type inflater struct{ reader io.ReadCloser }

func (i *inflater) reset(from io.Reader) (err error) {
	if i.reader == nil {
		i.reader, err = zlib.NewReader(from)
		return err
	}
	return i.reader.(zlib.Resetter).Reset(from, nil)
}

// Check checks the header of an encoded histogram before the histogram is decoded, because 42 bytes can ask for 49 MB
// of counters. An empty string is valid.
func Check(encoded []byte) error {
	if len(encoded) == 0 {
		return nil
	}
	header, err := headerOf(encoded)
	if err != nil {
		return err
	}
	figures := int32(binary.BigEndian.Uint32(header[figuresAt:]))
	lowest, highest := int64(binary.BigEndian.Uint64(header[lowestAt:])), int64(binary.BigEndian.Uint64(header[highestAt:]))
	if figures < 0 || figures > mostFigures || lowest > largestLowest || highest < 0 {
		return fmt.Errorf("a histogram from %d to %d with %d significant figures is not possible", lowest, highest, figures)
	}
	if n := counts(figures, lowest, highest); n > mostCounts {
		return fmt.Errorf("a histogram from %d to %d with %d significant figures has %d counters; at most %d are allowed",
			lowest, highest, figures, n, mostCounts)
	}
	return nil
}

func headerOf(encoded []byte) (header [innerHeader]byte, err error) {
	raw := base64.NewDecoder(base64.StdEncoding, bytes.NewReader(encoded))
	if _, err := io.CopyN(io.Discard, raw, outerHeader); err != nil {
		return header, errors.New("not an encoded histogram: it is too short or not base64")
	}
	in := inflaters.Get().(*inflater)
	defer inflaters.Put(in)
	if err := in.reset(raw); err != nil {
		in.reader = nil
		return header, fmt.Errorf("not an encoded histogram: %w", err)
	}
	if _, err := io.ReadFull(in.reader, header[:]); err != nil {
		return header, fmt.Errorf("not an encoded histogram: %w", err)
	}
	return header, nil
}

// counts returns how many counters a histogram with this header has. Each bucket covers twice the range of
// the one before it in the same number of steps, which are fine enough for the significant digits.
func counts(figures int32, lowest, highest int64) int64 {
	finest := uint64(2)
	for range figures {
		finest *= 10
	}
	steps := int64(1) << bits.Len64(finest-1) // the next power of two
	unit := bits.Len64(uint64(max(lowest, 1))) - 1
	buckets := int64(1)
	for covered := uint64(steps) << unit; covered <= uint64(highest); covered <<= 1 {
		buckets++
	}
	return (buckets + 1) * steps / 2
}
