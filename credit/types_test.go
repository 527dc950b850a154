package credit

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/internal/golden"
)

// families lists the types that the table must have.
var families = map[string][]string{
	"aws": {
		"t2.nano t2.micro t2.small t2.medium t2.large t2.xlarge t2.2xlarge",
		"t3.nano t3.micro t3.small t3.medium t3.large t3.xlarge t3.2xlarge",
		"t3a.nano t3a.micro t3a.small t3a.medium t3a.large t3a.xlarge t3a.2xlarge",
		"t4g.nano t4g.micro t4g.small t4g.medium t4g.large t4g.xlarge t4g.2xlarge", "gp2 gp3",
	},
	"azure": {"Standard_B1ls Standard_B1s Standard_B1ms Standard_B2s Standard_B2ms Standard_B4ms Standard_B8ms Standard_B12ms " +
		"Standard_B16ms Standard_B20ms"},
	"gcp": {"f1-micro g1-small e2-micro e2-small e2-medium"},
}

// ordinary are types that are not burstable.
const ordinary = "m6i.large m6i.xlarge m6i.2xlarge m6i.4xlarge m7g.medium m7g.large m7g.xlarge m7g.2xlarge m7g.4xlarge " +
	"c6i.large c6i.xlarge c6i.2xlarge c6i.4xlarge c7g.medium c7g.large c7g.xlarge c7g.2xlarge c7g.4xlarge"

// Every type of every family is there, with its provider, its sources and what that provider publishes. Credits last a day: a full balance
// is 24 hours of earnings.
func TestTheTableIsComplete(t *testing.T) {
	table := Shipped()
	var want []string
	for provider, lists := range families {
		for _, list := range lists {
			for _, name := range strings.Fields(list) {
				want = append(want, name)
				entry, err := table.Find(name)
				if err != nil {
					t.Error(err)
					continue
				}
				if entry.Provider != provider || len(entry.Sources) == 0 {
					t.Errorf("%s: provider %q, sources %q", name, entry.Provider, entry.Sources)
				}
				complete(t, &entry)
			}
		}
	}
	for _, name := range strings.Fields(ordinary) {
		want = append(want, name)
		if entry, err := table.Find(name); err != nil || len(entry.Buckets()) > 0 || entry.Price == 0 || len(entry.Sources) == 0 {
			t.Errorf("%s: %+v, %v", name, entry, err)
		}
	}
	slices.Sort(want)
	if got := table.Names(); !slices.Equal(got, want) {
		t.Errorf("the table has %v, want %v", got, want)
	}
	for _, s := range table.Sources {
		if _, err := time.Parse(time.DateOnly, s.Read); err != nil || s.URL == "" {
			t.Errorf("source %+v: %v", s, err)
		}
	}
}

func complete(t *testing.T, entry *Type) {
	t.Helper()
	for r, b := range entry.Buckets() {
		if !b.Sound() {
			t.Errorf("%s, %s: %+v", entry.Name, r, b)
		}
	}
	if entry.Disk != nil {
		return
	}
	c := entry.CPU
	if c == nil {
		t.Errorf("%s has no cpu", entry.Name)
		return
	}
	if entry.Provider == "gcp" {
		return // shows no credits
	}
	if c.Earned == nil || c.Cap == nil || math.Abs(*c.Cap-24**c.Earned) > rounding**c.Cap {
		t.Errorf("%s: a cap of %v is not a day of %v", entry.Name, orZero(c.Cap), orZero(c.Earned))
	}
	t2 := strings.HasPrefix(entry.Name, "t2.")
	if aws := entry.Provider == "aws"; (c.Launch > 0) == (aws && !t2) || c.Unlimited != (aws && !t2) || (c.Surplus > 0) != aws {
		t.Errorf("%s: launch credits %v, unlimited %v at %v", entry.Name, c.Launch, c.Unlimited, c.Surplus)
	}
	if entry.Provider == "aws" && entry.Price == 0 {
		t.Errorf("%s has no price", entry.Name)
	}
	if entry.Provider == "aws" && !t2 && (entry.Network == nil || entry.Network.Burst == 0) {
		t.Errorf("%s has no network allowance", entry.Name)
	}
}

// TestTheShippedTableIsTheFile compares types.json, which programs read, with types.yaml, which people edit. With -update it is
// written again.
func TestTheShippedTableIsTheFile(t *testing.T) {
	data, err := os.ReadFile("types.yaml")
	if err != nil {
		t.Fatal(err)
	}
	read, err := parse(yaml.NewDecoder("types.yaml"), data)
	if err != nil {
		t.Fatal(err)
	}
	written, err := json.MarshalIndent(read, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "types.json", append(written, '\n'))
}

// Facts of systems.md's sources, written down a second time.
func TestSomeFigures(t *testing.T) {
	for name, want := range map[string]Bucket{
		"t2.2xlarge":    {Baseline: 1.36, Burst: 8, PerUse: 1.0 / 60, Cap: 1958.4, Launch: 240},
		"t3.nano":       {Baseline: 0.1, Burst: 2, PerUse: 1.0 / 60, Cap: 144},
		"t4g.2xlarge":   {Baseline: 3.2, Burst: 8, PerUse: 1.0 / 60, Cap: 4608},
		"Standard_B2ms": {Baseline: 0.6, Burst: 2, PerUse: 1.0 / 60, Cap: 864, Launch: 60},
		"e2-micro":      {Baseline: 0.25, Burst: 2, PerUse: 1.0 / 60},
	} {
		entry, err := Shipped().Find(name)
		got := entry.Buckets()[quell.CPU]
		got.PerUse, want.PerUse = 0, 0
		if got.Baseline = math.Round(got.Baseline*1e9) / 1e9; err != nil || got != want {
			t.Errorf("%s: got %+v, want %+v, %v", name, got, want, err)
		}
	}
	gp2, _ := Shipped().Type("gp2")
	for gib, want := range map[float64]float64{8: 100, 40: 120, 100: 300, 1000: 3000, 2000: 6000, 9000: 16000} {
		if got := gp2.Disk.Bucket(gib); got.Baseline != want || got.Limits() != (want < 3000) {
			t.Errorf("gp2 of %v GiB: %+v", gib, got)
		}
	}
	gp3, _ := Shipped().Type("gp3")
	if b := gp3.Buckets()[quell.Disk]; b.Limits() {
		t.Errorf("gp3 has credits: %+v", b)
	}
}

// TestBadTables has one invalid file for each rule, and checks that it gives the message in the file beside it.
func TestBadTables(t *testing.T) {
	golden.BadFiles(t, "testdata/bad/*.yaml", func(t *testing.T, file string) error {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(yaml.NewDecoder(filepath.Base(file)), data)
		return err
	})
}

func TestOwnTypes(t *testing.T) {
	own, err := Parse(yaml.NewDecoder("own.yaml"), []byte("types:\n"+
		"- {type: mine.small, vcpus: 2, cpu: {baseline: 25%, earned: 30, cap: 100}}\n"+
		"- {type: t3.nano, vcpus: 2, cpu: {baseline: 50%}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	both := Shipped().With(own)
	if mine, err := both.Find("mine.small"); err != nil || mine.Buckets()[quell.CPU].Earned()*3600 != 30 {
		t.Errorf("got %+v, %v", mine, err)
	}
	if nano, _ := both.Type("t3.nano"); nano.Buckets()[quell.CPU].Baseline != 1 {
		t.Errorf("an own entry does not take precedence: %+v", nano)
	}
	if nano, _ := Shipped().Type("t3.nano"); nano.Buckets()[quell.CPU].Baseline != 0.1 {
		t.Error("With changes the table that it extends")
	}
	_, err = both.Find("t3.nanno")
	if err == nil || !strings.Contains(err.Error(), "t3.nano") || !strings.Contains(err.Error(), "file of your own") {
		t.Errorf("a type that is missing: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("types.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("types: [{type: a, vcpus: 1, cpu: {baseline: 10%, earned: 6, cap: 144}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := Parse(yaml.NewDecoder("fuzz.yaml"), data)
		if err != nil {
			return
		}
		for _, name := range table.Names() {
			entry, _ := table.Type(name)
			for r, b := range entry.Buckets() {
				if !b.Sound() {
					t.Fatalf("%s, %s: %+v", name, r, b)
				}
			}
		}
	})
}

// TestTheDocumentedTableIsRead checks that the table of own types in docs/credits.md can be used as it is.
func TestTheDocumentedTableIsRead(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "credits.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "\n    types:\n")
	text, _, ended := strings.Cut(rest, "\n\n")
	if !found || !ended {
		t.Fatal("docs/credits.md has no table of types")
	}
	own, err := Parse(yaml.NewDecoder("types.yaml"), []byte("types:\n"+text+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if disk, err := own.Find("mine.disk"); err != nil || disk.Disk == nil || disk.Disk.Cap == nil || *disk.Disk.Cap != 1e6 {
		t.Errorf("%+v, %v", disk, err)
	}
}
