package credit

import (
	_ "embed" // types.json
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// Type is what a provider publishes, or what was measured, of an instance type or of a volume.
type Type struct {
	Name     string
	Provider string
	Sources  []string // names in Table.Sources
	VCPUs    float64  // 0: a volume
	Price    float64  // dollars for an hour, on demand; 0: not known
	CPU      *CPU
	Network  *Network
	Disk     *Disk
}

// CPU is a type's credits of processor time. One credit is one minute of one processor.
type CPU struct {
	Baseline  float64  // of each processor, a fraction
	Earned    *float64 // credits per hour; nil: the provider has no credits that it shows
	Cap       *float64 // nil: not published
	Launch    float64
	Unlimited bool    // by default the instance does not slow down without credits; it costs Surplus
	Surplus   float64 // dollars for an hour of one processor beyond the credits; 0: not sold
}

// Network is a type's allowance of network bandwidth. One credit is one megabit.
type Network struct {
	Baseline float64  // bit/s
	Burst    float64  // bit/s; 0: not published
	Cap      *float64 // credits, which a new instance has; nil: not published
}

// Disk is a volume's credits of operations. One credit is one operation.
type Disk struct {
	Baseline float64 // operations per second of a volume of any size
	PerGiB   float64 // operations per second for each GiB, instead of Baseline
	Least    float64 // smallest and largest baseline of a volume with PerGiB
	Most     float64
	Burst    float64  // operations per second; a larger baseline counts instead
	Cap      *float64 // credits, which a new volume has; nil: the volume has no credits
}

// Source is a document or a measurement that figures come from.
type Source struct {
	Name, URL string
	Read      string // the day on which it was compared with the figures, as 2026-01-31
}

// Table is a set of types.
type Table struct {
	Sources []Source
	types   map[string]Type
}

//go:embed types.json
var shipped []byte

// listing is a table in the order of its file.
type listing struct {
	Sources []Source
	Types   []Type
}

// Shipped returns the table that Quell comes with. People edit types.yaml; a test writes types.json from it, so that programs need no
// YAML to use the table.
var Shipped = sync.OnceValue(func() *Table {
	var f listing
	if err := json.Unmarshal(shipped, &f); err != nil {
		panic(err) // a test reads the same bytes
	}
	return f.table()
})

// Parse reads a table with a decoder of its file. An error lists all mistakes.
func Parse(d *setting.Decoder, data []byte) (*Table, error) {
	f, err := parse(d, data)
	if err != nil {
		return nil, err
	}
	return f.table(), nil
}

func parse(d *setting.Decoder, data []byte) (f listing, err error) {
	table := setting.Table{
		setting.Opt("sources", setting.ListOf(&f.Sources, Source{}, func(s *Source) setting.Value { return sourceKeys(s) }),
			"where figures are from"),
		setting.Req("types", setting.ListOf(&f.Types, Type{}, func(t *Type) setting.Value { return typeKeys(t) }).AtLeast(1),
			"instance types and volumes"),
	}
	if d.Decode(data, table) {
		check(d, f.Sources, f.Types)
	}
	return f, d.Err()
}

func (f *listing) table() *Table {
	t := &Table{Sources: f.Sources, types: make(map[string]Type, len(f.Types))}
	for _, entry := range f.Types {
		t.types[entry.Name] = entry
	}
	return t
}

func sourceKeys(s *Source) setting.Table {
	return setting.Table{
		setting.Req("source", setting.Ident(&s.Name), "its name in this file"),
		setting.Req("url", setting.Text(&s.URL), "its address, or the title of a publication"),
		setting.Req("read", setting.Text(&s.Read), "the day on which the figures were compared with it"),
	}
}

func typeKeys(t *Type) setting.Table {
	return setting.Table{
		setting.Req("type", setting.Ident(&t.Name), "name of the instance type or of the volume"),
		setting.Opt("provider", setting.Ident(&t.Provider), "who rents it out"),
		setting.Opt("sources", setting.Idents(&t.Sources), "names of the sources of its figures"),
		setting.Opt("vcpus", setting.Decimal(&t.VCPUs).Above(0).Between(0, 1e4), "processors; left out for a volume"),
		setting.Opt("price", setting.Decimal(&t.Price).Above(0).Between(0, 1e5), "dollars for an hour, on demand"),
		setting.Opt("cpu", setting.Maybe(&t.CPU, cpuKeys), "credits of processor time"),
		setting.Opt("network", setting.Maybe(&t.Network, networkKeys), "allowance of network bandwidth"),
		setting.Opt("disk", setting.Maybe(&t.Disk, diskKeys), "credits of disk operations"),
	}
}

// mostCredits is the largest number of credits.
const mostCredits = 1e12

func cpuKeys(c *CPU) setting.Table {
	return setting.Table{
		setting.Req("baseline", setting.Share(&c.Baseline).Above(0).Between(0, 1), "of each processor"),
		setting.Opt("earned", credits(&c.Earned), "credits in an hour"),
		setting.Opt("cap", credits(&c.Cap), "largest balance"),
		setting.Opt("launch", setting.Decimal(&c.Launch).Between(0, mostCredits), "credits of a new instance"),
		setting.Opt("unlimited", setting.Bool(&c.Unlimited), "by default, use beyond the credits is sold instead of refused"),
		setting.Opt("surplus", setting.Decimal(&c.Surplus).Between(0, 1e3), "its price, in dollars for an hour of one processor"),
	}
}

func networkKeys(n *Network) setting.Table {
	return setting.Table{
		setting.Req("baseline", setting.Bandwidth(&n.Baseline).Above(0), "bandwidth that needs no credits"),
		setting.Opt("burst", setting.Bandwidth(&n.Burst).Above(0), "bandwidth while there are credits"),
		setting.Opt("cap", credits(&n.Cap), "megabits beyond the baseline that a new instance may send"),
	}
}

func diskKeys(k *Disk) setting.Table {
	return setting.Table{
		setting.Opt("baseline", setting.Decimal(&k.Baseline).Above(0).Between(0, 1e9), "operations per second that need no credits"),
		setting.Opt("per_gib", setting.Decimal(&k.PerGiB).Above(0).Between(0, 1e6), "the same, for each GiB of the volume"),
		setting.Opt("least", setting.Decimal(&k.Least).Between(0, 1e9), "smallest baseline of a volume with per_gib"),
		setting.Opt("most", setting.Decimal(&k.Most).Between(0, 1e9), "largest baseline of a volume with per_gib"),
		setting.Req("burst", setting.Decimal(&k.Burst).Above(0).Between(0, 1e9), "operations per second while there are credits"),
		setting.Opt("cap", credits(&k.Cap), "largest balance, which a new volume has"),
	}
}

func credits(dst **float64) setting.Value {
	return setting.Pointer(dst, func(v *float64) setting.Value { return setting.Decimal(v).Between(0, mostCredits) })
}

// check refuses entries that contradict themselves or each other.
func check(d *setting.Decoder, sources []Source, types []Type) {
	known := map[string]bool{}
	for i, s := range sources {
		if known[s.Name] {
			d.Refuse(fmt.Sprintf("sources[%d].source", i), "", "%q is defined twice", s.Name)
		}
		known[s.Name] = true
	}
	seen := map[string]bool{}
	for i, t := range types {
		path := fmt.Sprintf("types[%d]", i)
		if !d.Sound(path) {
			continue
		}
		if seen[t.Name] {
			d.Refuse(path+".type", "", "%q is defined twice", t.Name)
		}
		seen[t.Name] = true
		for k, name := range t.Sources {
			if !known[name] {
				d.Refuse(fmt.Sprintf("%s.sources[%d]", path, k), "list it under sources", "unknown source %q", name)
			}
		}
		t.check(d, path)
	}
}

func (t *Type) check(d *setting.Decoder, path string) {
	if t.CPU == nil && t.Network == nil && t.Disk == nil && t.Price == 0 {
		d.Refuse(path, "give it cpu, network or disk, or a price if it is not burstable", "has no credits at all")
	}
	if t.Price > 0 && t.VCPUs == 0 && d.Sound(path+".price") {
		d.Refuse(path+".price", "", "needs vcpus: it is the price of an instance")
	}
	if c := t.CPU; c != nil {
		t.checkCPU(d, path, c)
	}
	if n := t.Network; n != nil && n.Burst > 0 && n.Baseline > n.Burst {
		d.Refuse(path+".network.baseline", "", "must not be above burst")
	}
	if k := t.Disk; k != nil {
		switch {
		case (k.Baseline > 0) == (k.PerGiB > 0):
			d.Refuse(path+".disk", "", "needs either baseline or per_gib")
		case k.Baseline > k.Burst:
			d.Refuse(path+".disk.baseline", "", "must not be above burst")
		case k.Most > 0 && k.Least > k.Most:
			d.Refuse(path+".disk.least", "", "must not be above most")
		case k.Cap == nil && k.Baseline < k.Burst:
			d.Refuse(path+".disk", "write the same baseline and burst for a volume without credits", "needs cap: its burst is above its baseline")
		}
	}
}

// rounding is by how much published figures may differ from what they should be, as a fraction.
const rounding = 0.01

// checkCPU compares the figures with the definition of a credit: an hour at the baseline spends baseline x vcpus x 60.
func (t *Type) checkCPU(d *setting.Decoder, path string, c *CPU) {
	if t.VCPUs == 0 {
		d.Refuse(path, "", "needs vcpus: it has cpu")
		return
	}
	want := c.Baseline * t.VCPUs * 60
	if c.Earned != nil && math.Abs(*c.Earned-want) > rounding*want {
		d.Refuse(path+".cpu.earned", "", "is %g, and baseline x vcpus x 60 is %g credits in an hour", *c.Earned, want)
	}
	if c.Cap != nil && c.Earned == nil {
		d.Refuse(path+".cpu.cap", "", "needs earned: a balance that nothing fills")
	}
	if c.Unlimited && c.Surplus == 0 {
		d.Refuse(path+".cpu.unlimited", "", "needs surplus: the price of what is used beyond the credits")
	}
}

// Type returns the type with a name.
func (t *Table) Type(name string) (Type, bool) {
	found, ok := t.types[name]
	return found, ok
}

// Find returns the type with a name. If there is none, the error says how to add it.
func (t *Table) Find(name string) (Type, error) {
	if found, ok := t.Type(name); ok {
		return found, nil
	}
	return Type{}, &quell.UserError{Err: fmt.Errorf("instance type %q is not in the table of burstable types%s (or describe it in a file of "+
		"your own)", name, setting.Suggest(name, t.Names()))}
}

// Names lists the types in alphabetical order.
func (t *Table) Names() []string { return slices.Sorted(maps.Keys(t.types)) }

// With returns the table with the entries of another one, which take precedence.
func (t *Table) With(own *Table) *Table {
	both := &Table{Sources: slices.Concat(t.Sources, own.Sources), types: maps.Clone(t.types)}
	maps.Copy(both.types, own.types)
	return both
}

// fastestLink is the largest burst that is published for a burstable type, in bit/s. A type without a published burst is not faster.
const fastestLink = 5e9

// Buckets returns the instance's credits by resource. Uses are in processors and in bit/s. A resource whose figures do not suffice for a
// bucket is left out.
func (t *Type) Buckets() map[quell.Resource]Bucket {
	buckets := map[quell.Resource]Bucket{}
	if c := t.CPU; c != nil {
		buckets[quell.CPU] = Bucket{Baseline: c.Baseline * t.VCPUs, Burst: t.VCPUs, PerUse: 1.0 / 60, Cap: orZero(c.Cap), Launch: c.Launch}
	}
	if n := t.Network; n != nil {
		b := Bucket{Baseline: n.Baseline, Burst: n.Burst, PerUse: 1e-6, Cap: orZero(n.Cap), Launch: orZero(n.Cap)}
		if b.Burst == 0 {
			b.Most = math.Max(b.Baseline, fastestLink)
		}
		buckets[quell.Network] = b
	}
	if t.Disk != nil && t.Disk.Baseline > 0 {
		buckets[quell.Disk] = t.Disk.Bucket(0)
	}
	return buckets
}

// Bucket returns the credits of a volume of this size in GiB. Uses are in operations per second.
func (k *Disk) Bucket(gib float64) Bucket {
	baseline := k.Baseline
	if k.PerGiB > 0 {
		baseline = math.Max(k.PerGiB*gib, k.Least)
		if k.Most > 0 {
			baseline = math.Min(baseline, k.Most)
		}
	}
	return Bucket{Baseline: baseline, Burst: math.Max(k.Burst, baseline), PerUse: 1, Cap: orZero(k.Cap), Launch: orZero(k.Cap)}
}

func orZero(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}
