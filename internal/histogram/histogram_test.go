package histogram

import (
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// counts must return as many counters as the HdrHistogram library allocates for the same header.
func TestCountersAreCountedAsTheLibraryDoes(t *testing.T) {
	for figures := int32(1); figures <= 3; figures++ {
		for _, lowest := range []int64{1, 2, 3, 1000} {
			for _, highest := range []int64{1000, 1 << 20, 3_600_000_000, 86_400_000_000} {
				h := hdrhistogram.New(lowest, highest, int(figures))
				if got, want := counts(figures, lowest, highest), int64(len(h.Export().Counts)); got != want {
					t.Errorf("%d figures from %d to %d: %d counters, want %d", figures, lowest, highest, got, want)
				}
			}
		}
	}
}
