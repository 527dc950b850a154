package config

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/scaler/fixed"
	"github.com/quellhq/quell/setting"
)

// inventory is a driver that this package does not know.
type inventory struct {
	path  string
	slots int
}

func (i *inventory) Keys() setting.Table {
	return setting.Table{setting.Req("file", setting.Text(&i.path), "file that lists the instances")}
}

func (i *inventory) Check(d *setting.Decoder, service quell.Service) {
	if service.Group.Max > 100 {
		d.Refuse("scaler.file", "", "a file lists at most 100 instances")
	}
}

func (i *inventory) New(scaler.Env) (scaler.Driver, error) {
	return nil, errors.New("this is a test")
}
func (i *inventory) Files(string) []*string       { return []*string{&i.path} }
func (i *inventory) Follow(service quell.Service) { i.slots = service.Group.Max }

// TestADriverIsKnownByItsRow checks that a configuration can use a driver that it knows only from its row in the table Drivers.
func TestADriverIsKnownByItsRow(t *testing.T) {
	table := drivers
	table.Scalers = []scaler.Kind{fixed.Kind, {Name: "inventory", About: "a file", Defaults: func() scaler.Settings { return &inventory{} }}}
	f, err := table.Parse("/etc/quell/quell.yaml", []byte(least+"scaler: {kind: inventory, file: list.json}\ngroup: {max: 7}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := *f.Scaler.Settings.(*inventory); got != (inventory{path: "/etc/quell/list.json", slots: 7}) {
		t.Errorf("read %+v", got)
	}
	if _, fixed := f.Scaler.Listed(); fixed {
		t.Error("its group is taken for one of a fixed size")
	}
	for text, want := range map[string]string{
		"scaler: {kind: inventory}":                             "scaler.file is missing",
		"scaler: {file: list.json}":                             "scaler.file is a key of inventory only (remove it or change scaler.kind)",
		"scaler: {kind: process}":                               `unknown value "process" (known: fixed, inventory)`,
		"scaler: {kind: inventory, file: a}\ngroup: {max: 101}": "at most 100 instances",
	} {
		if _, err := table.Parse("quell.yaml", []byte(least+text+"\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	var reference bytes.Buffer
	if err := table.Reference(&reference); err != nil ||
		!strings.Contains(reference.String(), "| `scaler.file` | required | inventory: file that lists the instances |") {
		t.Errorf("the reference lacks its key: %v", err)
	}
}
