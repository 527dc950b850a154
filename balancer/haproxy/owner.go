package haproxy

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// The owner of a backend is stored in a variable of the HAProxy process, which every user of the runtime API can read. It contains the
// owner's id, a number that changes with every renewal, and the owner's name. Clocks are not compared: a controller replaces the owner when
// it has seen the owner's variable unchanged for the time of a lease. If HAProxy restarts, the variable is lost. The owner then writes it
// again at once, while others wait for the time of a lease.

const (
	freeOwner   = "free"     // the variable's value when the owner has stopped
	noOwner     = "released" // the variable's value when everything is as it was before Quell
	confirmWait = 150 * time.Millisecond
)

// claim is the last known owner of a backend in one process.
type claim struct {
	value   string    // of the variable, when it was last read
	since   time.Time // when this value was first read
	foreign bool      // the value is another controller's
	renewed time.Time // when this controller last renewed its lease
	without bool      // this HAProxy cannot store an owner in a variable
	found   bool      // another owner, or one that has stopped, was there before this controller
}

// Own makes a controller the owner of the backend in every HAProxy that can be reached, or renews its leases. While another controller's
// lease is valid, it fails with a *quell.OwnedError. When Own takes a backend, it waits a short time, to see which controller was first. It
// asks the HAProxies in order and stops at the first refusal, so that two controllers cannot own one each.
func (d *Driver) Own(ctx context.Context, owner quell.Owner) error {
	d.owning.Lock()
	defer d.owning.Unlock()
	var errs []error
	for _, p := range d.processes {
		err := p.own(ctx, owner)
		if errors.As(err, new(*quell.OwnedError)) {
			return err
		}
		errs = append(errs, err)
	}
	for _, err := range errs {
		if err == nil {
			return nil
		}
	}
	return errors.Join(errs...)
}

// Disown ends the leases, so that another controller can take over at once. Another one's lease stays.
func (d *Driver) Disown(ctx context.Context) error {
	d.owning.Lock()
	defer d.owning.Unlock()
	var errs []error
	for _, p := range d.processes {
		if p.claim.renewed.IsZero() || p.claim.without {
			continue
		}
		value, err := p.owner(ctx)
		if err == nil && p.claim.isOf(value) {
			err = p.setOwner(ctx, freeOwner)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// isOf returns whether a variable's value is of this controller.
func (c *claim) isOf(value string) bool {
	there, _ := parseOwner(value)
	mine, _ := parseOwner(c.value)
	return !c.foreign && there != "" && there == mine
}

// own makes a controller the owner in one HAProxy, or renews its lease there.
func (p *process) own(ctx context.Context, owner quell.Owner) error {
	if p.claim.without {
		return nil
	}
	value, err := p.owner(ctx)
	if err != nil || p.claim.without {
		return err
	}
	now := p.opts.Now()
	id, name := parseOwner(value)
	mine := id == owner.ID
	p.noteOwner(value != "" && value != noOwner && !mine)
	if value != p.claim.value && value != "" {
		p.claim.value, p.claim.since, p.claim.foreign = value, now, !mine && id != ""
	}
	if p.claim.foreign && now.Sub(p.claim.since) < p.opts.Lease {
		if value == "" {
			id, name = parseOwner(p.claim.value) // HAProxy was restarted: the previous owner will return
		}
		p.claim.renewed = time.Time{}
		return &quell.OwnedError{Balancer: "backend " + p.opts.Backend + " of HAProxy at " + p.socket.address,
			Owner: quell.Owner{ID: id, Name: name}, Lease: p.opts.Lease}
	}
	switch {
	case mine && now.Sub(p.claim.renewed) < p.opts.Lease/5:
		return nil
	case mine:
		return p.renew(ctx, owner)
	}
	return p.take(ctx, owner)
}

// disclaim says in HAProxy that nothing of Quell is left in the backend, so that the next controller neither waits nor takes what it finds
// for Quell's.
func (p *process) disclaim(ctx context.Context) error {
	if value, err := p.owner(ctx); err != nil || value == "" || value == noOwner {
		return err
	}
	if err := p.setOwner(ctx, noOwner); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claim = claim{value: noOwner, since: p.opts.Now(), without: p.claim.without}
	return nil
}

// noteOwner remembers that somebody has driven the backend before.
func (p *process) noteOwner(found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claim.found = p.claim.found || found
}

// take writes this controller's name, waits, and checks that it is still there.
func (p *process) take(ctx context.Context, owner quell.Owner) error {
	if err := p.renew(ctx, owner); err != nil || p.claim.without {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(confirmWait):
	}
	value, err := p.owner(ctx)
	if err != nil {
		return err
	}
	if id, _ := parseOwner(value); id != owner.ID {
		return p.own(ctx, owner) // own finds the other controller's name, and returns an error
	}
	p.opts.Logger.Info("this controller drives the backend", "backend", p.opts.Backend, "socket", p.socket.address)
	return nil
}

func (p *process) renew(ctx context.Context, owner quell.Owner) error {
	now := p.opts.Now()
	value := owner.ID + "/" + strconv.FormatInt(time.Now().UnixNano(), 36) + "/" + plain(owner.Name)
	if err := p.setOwner(ctx, value); err != nil {
		return err
	}
	p.claim.value, p.claim.since, p.claim.foreign, p.claim.renewed = value, now, false, now
	return nil
}

// owner reads the variable. It returns "" if there is none.
func (p *process) owner(ctx context.Context) (string, error) {
	answers, err := p.socket.exec(ctx, "get var "+ownerVariable(p.opts.Backend))
	if err != nil {
		return "", err
	}
	_, text, found := strings.Cut(answers[0], "value=<")
	switch {
	case found:
		return strings.TrimSuffix(strings.TrimSpace(text), ">"), nil
	case strings.Contains(answers[0], "not found"):
		return "", nil
	}
	p.withoutOwner(answers[0])
	return "", nil
}

func (p *process) setOwner(ctx context.Context, value string) error {
	// HAProxy treats `set var` as experimental; the mode ends with these commands.
	answers, err := p.socket.exec(ctx, "experimental-mode on", fmt.Sprintf("set var %s str(%s)", ownerVariable(p.opts.Backend), value),
		"experimental-mode off")
	if err != nil {
		return err
	}
	if answers[1] != "" {
		p.withoutOwner(answers[1])
	}
	return nil
}

func (p *process) withoutOwner(answer string) {
	p.claim.without = true
	p.opts.Logger.Warn("this HAProxy cannot keep which controller drives a backend: make sure that only one does", "socket", p.socket.address,
		"answer", shorten(answer))
}

// parseOwner parses a variable's value. The id is "" if nobody owns the backend.
func parseOwner(value string) (id, name string) {
	if value == freeOwner || value == noOwner {
		return "", ""
	}
	id, rest, _ := strings.Cut(value, "/")
	_, name, _ = strings.Cut(rest, "/")
	return id, name
}

// ownerVariable returns the name of a backend's variable. Only letters, digits and _ are allowed in it.
func ownerVariable(backend string) string {
	var name strings.Builder
	name.WriteString("proc.quell_owner_")
	for _, b := range []byte(backend) {
		if b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' {
			name.WriteByte(b)
		} else {
			fmt.Fprintf(&name, "_%02x", b)
		}
	}
	return name.String()
}

// plain returns a name without the characters that are not allowed in a variable's value.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune(".:/_-", r) {
			return r
		}
		return '_'
	}, name)
}
