package quell

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// forged encodes an empty histogram, and writes these values into its header.
func forged(t testing.TB, figures int32, lowest, highest int64) []byte {
	t.Helper()
	inner := binary.BigEndian.AppendUint32(nil, uint32(hdrhistogram.V2EncodingCookieBase|0x10))
	inner = binary.BigEndian.AppendUint32(inner, 0)
	inner = binary.BigEndian.AppendUint32(inner, 0)
	inner = binary.BigEndian.AppendUint32(inner, uint32(figures))
	inner = binary.BigEndian.AppendUint64(inner, uint64(lowest))
	inner = binary.BigEndian.AppendUint64(inner, uint64(highest))
	inner = binary.BigEndian.AppendUint64(inner, math.Float64bits(1))
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	if _, err := w.Write(inner); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	outer := binary.BigEndian.AppendUint32(nil, uint32(hdrhistogram.V2CompressedEncodingCookieBase|0x10))
	outer = binary.BigEndian.AppendUint32(outer, uint32(packed.Len()))
	return []byte(base64.StdEncoding.EncodeToString(append(outer, packed.Bytes()...)))
}

func TestTheGeometryOfAHistogramIsBounded(t *testing.T) {
	const hour, day = int64(time.Hour / time.Microsecond), int64(24 * time.Hour / time.Microsecond)
	for _, test := range []struct {
		figures         int32
		lowest, highest int64
		refused         string
	}{
		{2, 1, hour, ""}, {2, 1, day, ""}, {3, 1, day, ""}, {0, 0, 1, ""}, {1, 1000, day, ""},
		{5, 1, math.MaxInt64, "counters; at most"},
		{3, 1, math.MaxInt64, "counters; at most"},
		{5, 1, hour, "counters; at most"},
		{6, 1, hour, "not possible"}, {-1, 1, hour, "not possible"}, {2, math.MaxInt64, math.MaxInt64, "not possible"},
		{2, 1, -1, "not possible"},
	} {
		data := forged(t, test.figures, test.lowest, test.highest)
		r := Reading{Service: "s", Instance: "i", Source: FromBalancer, LatencyHDR: data}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := r.Validate()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 256<<10 {
			t.Errorf("%d figures from %d to %d: %d bytes were taken to judge %d", test.figures, test.lowest, test.highest, took, len(data))
		}
		switch {
		case test.refused == "" && err != nil:
			t.Errorf("%d figures from %d to %d: %v", test.figures, test.lowest, test.highest, err)
		case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused) || !strings.Contains(err.Error(), "latency_hdr")):
			t.Errorf("%d figures from %d to %d: %v, want %q", test.figures, test.lowest, test.highest, err, test.refused)
		}
	}
}

func TestWhatIsNoHistogramIsRefused(t *testing.T) {
	good := forged(t, 2, 1, 1000)
	for _, bad := range [][]byte{[]byte("x"), []byte("hello"), []byte("aGVsbG8="), good[:20], bytes.Repeat([]byte("A"), 1000)} {
		r := Reading{Service: "s", Instance: "i", Source: FromBalancer, ConnectHDR: bad}
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "connect_hdr") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := (&Reading{Service: "s", Instance: "i", Source: FromBalancer, ConnectHDR: good}).Validate(); err != nil {
		t.Errorf("after bad ones: %v", err)
	}
}
