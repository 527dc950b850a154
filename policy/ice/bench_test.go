package ice

import (
	"fmt"
	"testing"

	"github.com/quellhq/quell/policy/bands"
)

// BenchmarkICE measures one decision of ice beside another policy, without JSON: while nobody has neighbours, in the second in which all
// instances get some, and in one in which half of them are calm again while the others' cuts change.
func BenchmarkICE(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		for _, tc := range []struct {
			name string
			play func(s *shop)
		}{
			{"quiet", func(*shop) {}},
			{"all", func(s *shop) { eachOf(s.servers, func(v *served) { v.hidden = 0.6 }) }},
			{"half", func(s *shop) {
				for i := range s.servers {
					s.servers[i].hidden = 0.6
				}
				s.seconds(1)
				for i := range s.servers {
					s.servers[i].hidden = 0.8 * float64(i%2)
				}
				s.seconds(9)
			}},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, tc.name), func(b *testing.B) {
				s := newShop(b, n, nil, tuned)
				s.seconds(bands.Known + 1)
				tc.play(s)
				snapshot := s.next()
				b.ReportAllocs()
				for b.Loop() {
					s.decide(snapshot, s.st)
				}
			})
		}
	}
}
