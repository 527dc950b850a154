package figure

import (
	"image/color"
	"strings"
	"unicode"
)

// palette are the colours of plots, which people with the usual kinds of colour blindness can tell apart beside each other.
var palette = [MostSeries]color.NRGBA{
	{0x1f, 0x77, 0xb4, 0xff}, {0xe6, 0x7e, 0x00, 0xff}, {0x2c, 0x8c, 0x2c, 0xff}, {0x8e, 0x5c, 0xc2, 0xff}, {0x8c, 0x56, 0x4b, 0xff},
	{0xc9, 0x4f, 0xa5, 0xff}, {0x00, 0x96, 0xa8, 0xff},
}

// The colours of what is no policy.
var (
	Threshold = color.NRGBA{0x30, 0x30, 0x30, 0xff}
	Others    = color.NRGBA{0x9a, 0x9a, 0x9a, 0xff} // what is there for comparison
)

// policies are the colours of policies, and of what balances without one: the same in every plot. A name is that of the first whose words
// it has.
var policies = []struct {
	word string
	col  color.NRGBA
}{
	{"prima", color.NRGBA{0xd6, 0x27, 0x28, 0xff}},
	{"mrburst", palette[1]},
	{"parameters", palette[5]}, // IC², and ICE with it
	{"dial", palette[2]},
	{"ice", palette[0]},
	{"acs", palette[3]},
	{"outlier", palette[5]},
	{"hpa", palette[4]},
	{"knapsack", palette[6]},
	{"lsf", palette[5]},
	{"lr", palette[4]},
	{"envoy", palette[6]},
	{"roundrobin", Others},
	{"random", color.NRGBA{0xb0, 0x90, 0x60, 0xff}},
	{"leastconn", Threshold},
	{"static", Others},
	{"default", Others},
	{"literal", palette[4]},
}

// Nth is the colour of the nth series, from 0, of those that are no policies.
func Nth(n int) color.NRGBA { return palette[n%len(palette)] }

// Policy is the colour of a policy, or of a run's title that names one; ok is false if it names none.
func Policy(title string) (col color.NRGBA, ok bool) {
	words := strings.FieldsFunc(strings.ToLower(title), func(r rune) bool { return !unicode.IsLetter(r) })
	for _, p := range policies {
		for _, w := range words {
			if w == p.word {
				return p.col, true
			}
		}
	}
	return color.NRGBA{}, false
}

// Runs are the colours of runs: each of its policy, and if an earlier run has that one, or there is none, the first that is free.
func Runs(titles ...string) []color.NRGBA {
	all := make([]color.NRGBA, len(titles))
	taken := map[color.NRGBA]bool{}
	for i, title := range titles {
		if col, ok := Policy(title); ok && !taken[col] {
			all[i], taken[col] = col, true
		}
	}
	for i := range all {
		for n := 0; all[i].A == 0; n++ {
			if col := Nth(n); n >= len(palette) || !taken[col] {
				all[i], taken[col] = col, true
			}
		}
	}
	return all
}
