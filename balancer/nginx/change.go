package nginx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/managed"
	"github.com/quellhq/quell/internal/atomicfile"
)

// nobody is the address of the server that stands in the file while there is no instance: nginx refuses an upstream without servers.
const nobody = "127.0.0.1:9"

// target is the wanted line of an entry.
type target struct {
	*entry
	line   *server // its present line; nil: there is none
	share  float64
	weight int
	down   bool
}

// serves returns whether the target gets a share of the requests.
func (t *target) serves() bool { return !t.down && !t.ByHand }

// held returns whether somebody else took the target out, so that its line stays as it is.
func (t *target) held() bool { return t.ByHand && !t.Drain && !t.Leaving }

// wanted returns the wanted lines of all entries. If the weights in force give the shares as precisely as others would, they stay.
func (d *Driver) wanted(ctx context.Context, f *file) []target {
	list := make([]target, len(d.entries))
	var shares []float64
	for i, e := range d.entries {
		b := d.asked[e.ID]
		list[i] = target{entry: e, line: d.find(ctx, f, e.Address), share: b.Weight, down: e.Leaving || e.Drain || b.Weight == 0}
		if list[i].serves() {
			shares = append(shares, b.Weight)
		}
	}
	weights, present := shortened(balancer.Whole(shares, mostWeight)), inForce(list)
	if balancer.WholeError(present, shares) <= balancer.WholeError(weights, shares)+balancer.Ties {
		weights = present
	}
	for i := range list {
		switch t := &list[i]; {
		case t.serves():
			t.weight, weights = weights[0], weights[1:]
		case t.line != nil:
			t.weight = t.line.weight
		default:
			t.weight = 1
		}
	}
	return list
}

// shortened divides weights by what divides them all.
func shortened(weights []int) []int {
	divisor := 0
	for _, w := range weights {
		for a := w; a > 0; {
			divisor, a = a, divisor%a
		}
	}
	for i := range weights {
		weights[i] /= max(1, divisor)
	}
	return weights
}

// inForce returns the present weights of the targets that get requests; 0 for those without a line.
func inForce(list []target) (weights []int) {
	for i := range list {
		switch t := &list[i]; {
		case !t.serves():
		case t.line == nil:
			weights = append(weights, 0)
		default:
			weights = append(weights, t.line.weight)
		}
	}
	return weights
}

// change brings the file and nginx to what is wanted, or leaves both as they were.
func (d *Driver) change(ctx context.Context, f *file, list []target) error {
	text, changed, urgent := d.edited(f, list)
	if text == f.text && !urgent {
		d.waiting.Report(nil)
		return nil
	}
	wait, why := d.tooSoon(urgent)
	if d.waiting.Report(why); wait {
		return nil
	}
	before := make([]entry, len(d.entries))
	for i, e := range d.entries {
		before[i] = *e
	}
	d.commit(changed)
	d.memory.Keep(d.entries)
	if err := d.write(ctx, f, text); err != nil {
		for i := range before {
			*d.entries[i] = before[i]
		}
		return err
	}
	d.settled(list)
	return nil
}

// edited returns the new text, the targets whose lines change, and whether the change can not wait.
func (d *Driver) edited(f *file, list []target) (text string, changed []target, urgent bool) {
	var edits []edit
	var added []string
	serving := len(f.servers)
	for i := range list {
		t := &list[i]
		urgent = urgent || t.Unsure
		switch {
		case t.held():
		case t.line == nil && !t.Leaving && t.Added:
			added = append(added, line(t.Address, t.weight, t.down, d.opts.Server))
			changed, urgent = append(changed, *t), true
		case t.line == nil:
		case t.Leaving && t.Added:
			start, end := whole(f.text, t.line.directive)
			edits = append(edits, edit{start, end, ""})
			changed, urgent, serving = append(changed, *t), true, serving-1
		case t.line.weight != t.weight || t.line.down != t.down:
			edits = append(edits, edit{t.line.start, t.line.end, t.line.with(t.weight, t.down)})
			changed, urgent = append(changed, *t), urgent || t.line.down != t.down
		}
	}
	missing, remove := f.nobody(serving + len(added))
	if missing {
		added, urgent = append(added, line(nobody, 1, true, nil)+" # there is no instance"), true
	}
	if remove != nil {
		edits, urgent = append(edits, *remove), true
	}
	at, before, after := f.end()
	for _, text := range added {
		edits = append(edits, edit{at, at, before + text + after})
	}
	return apply(f.text, edits), changed, urgent
}

// nobody returns whether the line that stands for no server is missing among so many servers with it, or how to remove it.
func (f *file) nobody(serving int) (missing bool, remove *edit) {
	i := slices.IndexFunc(f.servers, func(s server) bool { return s.address == nobody && s.down })
	switch {
	case serving == 0:
		return true, nil
	case serving == 1 || i < 0:
		return false, nil
	}
	start, end := f.servers[i].start, f.servers[i].end
	if eol := strings.IndexByte(f.text[end:], '\n'); eol >= 0 {
		end += eol + 1
	}
	return false, &edit{start, end, ""}
}

// end returns where new servers are added, and what stands before and after each: on lines of their own after the last server's line.
func (f *file) end() (at int, before, after string) {
	at = len(f.text)
	if len(f.servers) > 0 {
		s := f.servers[len(f.servers)-1]
		before = f.text[strings.LastIndexByte(f.text[:s.start], '\n')+1 : s.start]
		before = before[:len(before)-len(strings.TrimLeft(before, " \t"))]
		if eol := strings.IndexByte(f.text[s.end:], '\n'); eol >= 0 {
			return s.end + eol + 1, before, "\n"
		}
	}
	if f.text == "" || strings.HasSuffix(f.text, "\n") {
		return at, before, "\n"
	}
	return at, "\n" + before, ""
}

// tooSoon returns whether a change has to wait for a later Apply, and why, if that is worth a word.
func (d *Driver) tooSoon(urgent bool) (wait bool, why error) {
	since := time.Since(d.reloaded)
	if since < min(urgentEvery, d.opts.Every) || !urgent && since < d.opts.Every {
		return true, nil
	}
	active, old, err := d.master.workers()
	if err != nil || urgent || old < mostOld*max(1, len(active)) {
		return false, nil
	}
	return true, fmt.Errorf("%d old workers of nginx still finish requests: weights wait for them; worker_shutdown_timeout in nginx's "+
		"configuration limits how long they may take", old)
}

// commit notes in the entries what is about to be written.
func (d *Driver) commit(changed []target) {
	for _, t := range changed {
		t.entry.Weight, t.entry.Down, t.entry.Unsure = t.weight, t.down, true
	}
}

// settled notes that what was written is in force.
func (d *Driver) settled(list []target) {
	for _, t := range list {
		t.entry.Unsure = false
	}
	d.entries = slices.DeleteFunc(d.entries, func(e *entry) bool { return e.Leaving && e.Added })
	d.reloaded = time.Now()
	d.names.forget()
}

// write puts the text in the file, lets nginx check it, and reloads nginx. If nginx refuses it, the old text is put back.
func (d *Driver) write(ctx context.Context, f *file, text string) error {
	if err := d.put(text, f.mode); err != nil {
		return fmt.Errorf("writing nginx's servers: %w", err)
	}
	err := d.master.check(ctx)
	if err == nil {
		err = d.master.renew(ctx)
	}
	if err == nil {
		return nil
	}
	if now, failed := os.ReadFile(d.opts.Include); failed == nil && string(now) != text {
		return fmt.Errorf("%w; somebody has changed %s meanwhile, which stays as it is", err, d.opts.Include)
	}
	if undo := d.put(f.text, f.mode); undo != nil {
		return errors.Join(err, fmt.Errorf("putting back nginx's servers: %w", undo))
	}
	return err
}

// put replaces the file and keeps its owner. A symbolic link stays one.
func (d *Driver) put(text string, mode os.FileMode) error {
	path := d.opts.Include
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if real, err := realPath(path); err == nil {
		path = real
	}
	return atomicfile.WriteWith(path, []byte(text), mode, func(file *os.File) error {
		if info == nil {
			return nil
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(owner.Uid) == os.Geteuid() && int(owner.Gid) == os.Getegid() {
			return nil
		}
		return file.Chown(int(owner.Uid), int(owner.Gid))
	})
}

// states returns what the file declares, ordered by id.
func (d *Driver) states(ctx context.Context, f *file) (states []quell.BackendState) {
	open, err := d.conns()
	d.counting.Report(err)
	list := d.wanted(ctx, f)
	if d.asked == nil {
		list = d.unmanaged(ctx, f)
	}
	sum := 0
	for _, s := range f.servers {
		if !s.down {
			sum += s.weight
		}
	}
	bases := d.bases(list)
	for i := range list {
		if t := &list[i]; t.line != nil || t.held() {
			s := t.state(sum, d.asked != nil)
			s.Healthy, s.Health = d.checks.Of(t.ID)
			s.Base = bases[t.ID]
			for _, a := range d.names.of(ctx, withPort(t.Address)) {
				s.InFlight += open[a]
			}
			states = append(states, s)
		}
	}
	slices.SortFunc(states, func(a, b quell.BackendState) int { return strings.Compare(a.ID, b.ID) })
	return states
}

// state returns what is in force for a target. If that is not what is wanted, the state has no address: it then differs from the request,
// and so Apply is called again.
func (t *target) state(sum int, asked bool) quell.BackendState {
	s := quell.BackendState{Foreign: !asked, Backend: t.Backend(0)}
	switch {
	case t.held():
		s.ByHand, s.Draining = &quell.Held{By: "nginx"}, false
	case t.line == nil || t.Unsure || asked && t.line.down != t.down:
		s.Address = ""
	case !t.line.down && asked && t.line.weight == t.weight:
		s.Weight = t.share
	case !t.line.down:
		s.Weight = float64(t.line.weight) / float64(sum)
	}
	return s
}

// unmanaged lists what a first controller finds: the known entries, the lines of a fixed group's instances, and all other servers, whose
// address is their id.
func (d *Driver) unmanaged(ctx context.Context, f *file) (list []target) {
	taken := map[*server]bool{}
	add := func(e *entry, byHand bool) {
		t := target{entry: e, line: d.find(ctx, f, e.Address)}
		if t.line != nil {
			t.entry.ByHand = e.ByHand || byHand && t.line.down
			taken[t.line] = true
		}
		list = append(list, t)
	}
	for _, e := range d.entries {
		known := *e
		add(&known, false)
	}
	for _, m := range d.opts.Members {
		if !slices.ContainsFunc(d.entries, func(e *entry) bool { return e.ID == m.ID }) {
			add(&entry{Entry: managed.OfMember(m)}, true)
		}
	}
	for i := range f.servers {
		if s := &f.servers[i]; !taken[s] && s.address != nobody {
			add(&entry{Entry: managed.Entry{ID: s.address, Address: s.address}}, true)
		}
	}
	return list
}

// bases returns the weights that people chose, divided by their mean; nil if all are equal.
func (d *Driver) bases(list []target) map[string]*float64 {
	chosen := map[string]int{}
	for _, t := range list {
		if chosen[t.ID] = t.Base; t.Base == 0 && t.line != nil && d.asked == nil {
			chosen[t.ID] = t.line.weight
		}
	}
	return balancer.Bases(chosen)
}
