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

// A HAProxy knows which controller drives a backend by a variable of its process, which every user of the runtime API
// sees: the owner's id, a number that changes with every renewal, and the owner's name. Nobody's clock matters: a
// controller takes the place of another one whose variable it has seen unchanged for a lease. A restart of HAProxy loses
// the variable: its owner writes it again at once, and others wait for a lease.

const (
	freeOwner   = "free" // the variable of a backend whose owner has stopped
	confirmWait = 150 * time.Millisecond
)

// claim is what a process is known to say of its owner.
type claim struct {
	value   string    // of the variable, as it was last seen
	since   time.Time // when it was first seen so
	foreign bool      // it was another controller's
	renewed time.Time // by this one
	without bool      // this HAProxy keeps no owner
}

// Own makes a controller the owner of the backend in every HAProxy that can be reached, or renews its leases. It fails
// with a *quell.OwnedError where another controller's lease runs. Taking a backend waits a moment, to see who was first.
// They are asked in their order, and no further than to a refusal, so that two controllers cannot end with one each.
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

// Disown lets another controller come at once.
func (d *Driver) Disown(ctx context.Context) error {
	d.owning.Lock()
	defer d.owning.Unlock()
	var errs []error
	for _, p := range d.processes {
		if !p.claim.renewed.IsZero() && !p.claim.without {
			errs = append(errs, p.setOwner(ctx, freeOwner))
		}
	}
	return errors.Join(errs...)
}

// own asks one HAProxy.
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
	if value != p.claim.value && value != "" {
		p.claim.value, p.claim.since, p.claim.foreign = value, now, !mine && id != ""
	}
	if p.claim.foreign && now.Sub(p.claim.since) < p.opts.Lease {
		if value == "" {
			id, name = parseOwner(p.claim.value) // HAProxy was restarted: its owner will be back
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

// take writes this controller's name, and looks after a moment whether it still stands there.
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
		return p.own(ctx, owner) // which finds another's, and refuses
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

// owner reads the variable; empty where there is none.
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
	// HAProxy calls `set var` an experiment; the mode ends with these commands.
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

// parseOwner reads a variable's value; the id is empty where nobody owns the backend.
func parseOwner(value string) (id, name string) {
	if value == freeOwner {
		return "", ""
	}
	id, rest, _ := strings.Cut(value, "/")
	_, name, _ = strings.Cut(rest, "/")
	return id, name
}

// ownerVariable is a backend's variable. Names of variables take letters, digits and _ only.
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

// plain leaves of a name what may stand in a value.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune(".:/_-", r) {
			return r
		}
		return '_'
	}, name)
}
