package envoy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	lookEvery   = 5 * time.Second // how often the names of instances are resolved again
	mostLookUps = 32              // at the same time
)

// resolved is what a name stands for.
type resolved struct {
	list []netip.AddrPort
	err  error
	turn uint64 // when it was asked for, among all questions of the driver; 0: it was not
}

// lookUp resolves addresses, several at the same time. It needs no lock, because it may take long.
func (d *Driver) lookUp(ctx context.Context, addresses []string) map[string]resolved {
	var mu sync.Mutex
	var asking sync.WaitGroup
	found, slots := make(map[string]resolved, len(addresses)), make(chan struct{}, mostLookUps)
	for _, a := range addresses {
		slots <- struct{}{}
		asking.Go(func() {
			turn := d.turns.Add(1)
			list, err := d.resolve(ctx, a)
			mu.Lock()
			found[a] = resolved{list, err, turn}
			mu.Unlock()
			<-slots
		})
	}
	asking.Wait()
	return found
}

// place sets the numeric address. The one of before stays if it is still one of those that the name stands for, so that an instance with
// several does not move to and fro, if the name cannot be resolved or was not asked for, and if it was found out later than this: other
// names may have been waited for meanwhile.
func (e *entry) place(found resolved, before *entry) error {
	same := before.Address == e.Address
	if same {
		e.turn = before.turn
	}
	news := len(found.list) > 0 && found.turn >= e.turn
	if news {
		e.turn = found.turn
	}
	switch stands := func(a netip.AddrPort) bool { return a.String() == before.Numeric }; {
	case news && !(same && slices.ContainsFunc(found.list, stands)):
		e.Numeric = slices.MinFunc(found.list, netip.AddrPort.Compare).String()
	case same:
		e.Numeric = before.Numeric
	}
	if found.err != nil {
		return fmt.Errorf("address of %s: %w", e.ID, found.err)
	}
	return nil
}

// names lists what is to be resolved: always the instances of the fixed group that have no address yet, and every lookEvery all names.
func (d *Driver) names(now time.Time) (list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.waiting {
		list = append(list, m.Address)
	}
	if now.Sub(d.looked) < lookEvery {
		return list
	}
	d.looked = now
	for _, e := range d.entries {
		if e.named() {
			list = append(list, e.Address)
		}
	}
	return list
}

// named returns whether the address is a name.
func (e *entry) named() bool {
	_, err := netip.ParseAddrPort(e.Address)
	return err != nil
}

// renew gives Envoys what names stand for now.
func (d *Driver) renew(ctx context.Context, now time.Time) error {
	found := d.lookUp(ctx, d.names(now))
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := d.placeMembers(found)
	for _, e := range d.entries {
		was := e.Numeric
		_ = e.place(found[e.Address], e) // it stays where it is, which the next Apply says
		if e.Numeric != was {
			d.opts.Logger.Info("the name of an instance stands for another address", "instance", e.ID, "name", e.Address, "from", was,
				"to", e.Numeric)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	d.follow()
	if d.asked {
		d.memory.Keep(d.entries)
	}
	return d.give()
}

// follow checks the health of the instances where Envoys find them.
func (d *Driver) follow() {
	at, names := make(map[string]string, len(d.entries)), map[string]string{}
	for _, e := range d.entries {
		if at[e.ID] = e.Numeric; e.named() {
			names[e.ID] = e.Address
		}
	}
	d.checks.FollowNamed(at, names)
}
