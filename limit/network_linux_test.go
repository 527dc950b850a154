package limit

import (
	"errors"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
)

// anInterface makes a network namespace for this test's thread, with one interface.
func anInterface(t *testing.T) (name string, o Options) {
	t.Helper()
	return need.Interface(t), Options{Records: t.TempDir()}
}

func TestThisMachinesInterfaces(t *testing.T) {
	name, o := anInterface(t)
	l := New(o)
	target := Target{Group: name, Resource: quell.Network}
	for _, rate := range []float64{1e6, 200e6, 40e9, 200e6} {
		wantNone(t, l.Apply(map[Target]float64{target: rate}))
		if value, limited := sent.value(must(sent.read(name))); !limited || value != rate {
			t.Errorf("%v bit/s are in force, want %v", value, rate)
		}
		if _, bucket, err := sent.ours(name); err != nil || bucket.Limit < 400*12*1514 {
			t.Errorf("at %v bit/s, the windows of 400 connections do not fit into the queue: %+v, %v", rate, bucket, err)
		}
	}
	if list, err := Show(o); err != nil || len(list) != 1 || list[0].Before != unlimited {
		t.Errorf("shown: %+v, %v", list, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if now, err := sent.read(name); err != nil || now != unlimited {
		t.Errorf("afterwards %q, %v", now, err)
	}
	wantRecords(t, o, 0)
	wantOne(t, l.Apply(map[Target]float64{{Group: "q9", Resource: quell.Network}: 1e6}), "there is no interface q9")
	wantOne(t, l.Apply(map[Target]float64{{Group: "/q0", Resource: quell.Network}: 1e6}), "is no name of an interface")
}

// A queueing discipline that somebody set stays, also if limits are to be taken over.
func TestAQueueingDisciplineIsNeverRemoved(t *testing.T) {
	name, o := anInterface(t)
	o.TakeOver = true
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	theirs := sent.bucket(link, 5e6)
	theirs.Handle = netlink.MakeHandle(1, 0)
	if err := netlink.QdiscAdd(theirs); err != nil {
		need.Skip(t, "needs tbf: "+err.Error())
	}
	l := New(o)
	wantOne(t, l.Apply(map[Target]float64{{Group: name, Resource: quell.Network}: 1e6}), "that somebody else set: it stays")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	list, err := netlink.QdiscList(link)
	kept := false
	for _, q := range list {
		kept = kept || q.Attrs().Handle == theirs.Handle
	}
	if err != nil || !kept {
		t.Errorf("%v, %v", list, err)
	}
}

// A killed owner's token bucket is removed at the next start.
func TestAKilledOwnersTokenBucketIsRemoved(t *testing.T) {
	name, o := anInterface(t)
	l := New(o)
	target := Target{Group: name, Resource: quell.Network}
	wantNone(t, l.Apply(map[Target]float64{target: 1e6}))
	if err := l.held[target].file.Close(); err != nil { // as the kernel does when a process ends
		t.Fatal(err)
	}
	done, err := Restore(o)
	if err != nil || len(done) != 1 {
		t.Errorf("restored %v, %v", done, err)
	}
	if now, err := sent.read(name); err != nil || now != unlimited {
		t.Errorf("afterwards %q, %v", now, err)
	}
	if _, err := os.Stat(pathOf(o.Records, target)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is still there: %v", err)
	}
}
