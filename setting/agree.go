package setting

import (
	"fmt"
	"net"
	"slices"
)

// First returns the first of the paths that the file sets.
func (d *Decoder) First(paths ...string) string {
	return paths[max(0, slices.IndexFunc(paths, d.Given))]
}

// Apart refuses the same address for two listeners of one process.
func (d *Decoder) Apart(a, atA, b, atB string) {
	if d.Sound(a, b) && samePort(atA, atB) {
		d.Refuse(d.First(b, a), "use another port", "%s and %s cannot both listen on %s", a, b, atA)
	}
}

// Needs reports the named keys of a section that are missing although another value requires them; why names that value.
func (d *Decoder) Needs(section, why string, names ...string) {
	for _, name := range names {
		if path := Join(section, name); d.Sound(path) && !d.Given(path) {
			d.MarkBroken(path)
			d.ProblemAt(d.PlaceOf(section), fmt.Sprintf("%s is missing: %s needs it", path, why), "")
		}
	}
}

// Require reports which of these keys are missing at the top level of the file.
func (d *Decoder) Require(needed ...Key) {
	for _, k := range needed {
		if !d.Given(k.Name) && !d.broken[k.Name] {
			d.MarkBroken(k.Name)
			d.ProblemAt(d.PlaceOf(""), k.Name+" is missing", k.meaning)
		}
	}
}

// Bars refuses the named keys of a section, because they have no meaning together with another value; why says which.
func (d *Decoder) Bars(section, why string, names ...string) {
	for _, name := range names {
		if path := Join(section, name); d.Given(path) {
			d.Refuse(path, "remove it or change the kind", "is of no use to %s", why)
		}
	}
}

// Either refuses a file that sets both keys; why says why.
func (d *Decoder) Either(a, b, why string) {
	if d.Given(a) && d.Given(b) {
		d.Refuse(b, "keep one of them", "%s and %s exclude each other: %s", a, b, why)
	}
}

// Increasing refuses a list in which a number is not larger than the one before it.
func (d *Decoder) Increasing(path string, shares []float64) {
	for i := 1; i < len(shares); i++ {
		if item := fmt.Sprintf("%s[%d]", path, i); d.Sound(path) && shares[i] <= shares[i-1] {
			d.Refuse(item, "", "%s does not come after %s: the list must increase", FormatShare(shares[i]), FormatShare(shares[i-1]))
			return
		}
	}
}

// samePort returns whether two listen addresses cannot be used together.
func samePort(a, b string) bool {
	_, port, err := net.SplitHostPort(a)
	return err == nil && a == b && port != "0"
}
