package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// undoWait limits how long a change may take to undo, whatever became of the order for it.
const undoWait = 15 * time.Second

// Driver changes the parameters of one server. Its methods may be called concurrently.
type Driver struct {
	*Settings
	target string
	form   syntax
	log    *slog.Logger

	settleTime, settleEvery, unreadEvery time.Duration

	life     context.Context // until Close
	cancel   context.CancelFunc
	watching sync.WaitGroup

	changing sync.Mutex       // held during a change
	mu       sync.Mutex       // guards before and, if there is no change in progress, the fields below it; see begin
	before   *known           // what was in force before the change in progress; nil: there is none
	files    map[string]*file // by path in the configuration
	told     map[string]bool  // files whose edits by others were reported
	module   runningModule
	trial    *trial   // nil: the server has settled
	ended    []change // changes after which the server ended
	fate     *fate    // nil: no change ended the server

	reminding bool // a loop makes the server read files again that it has not read
}

// ParameterError is what keeps single parameters of a server from being changed. Without them, the server's other parameters can be.
type ParameterError struct {
	Names []string
	Err   error
}

func (e *ParameterError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ParameterError) Unwrap() error { return e.Err }

// Open reserves the server's files and restores those that a killed agent left changed. It is an error if a file is missing or does not
// set a parameter, if a template fails, or if another agent manages a file.
func Open(ctx context.Context, s Server, log *slog.Logger) (*Driver, error) {
	d := newDriver(ctx, s, log)
	if err := d.open(ctx); err != nil {
		d.stopWatching()
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

func newDriver(ctx context.Context, s Server, log *slog.Logger) *Driver {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	d := &Driver{Settings: s.Settings, target: s.Target(), log: log.With("server", s.Target()),
		settleTime: settleTime, settleEvery: settleEvery, unreadEvery: unreadEvery,
		files: map[string]*file{}, told: map[string]bool{}}
	d.form = s.Settings.syntax(d.mpm)
	d.life, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return d
}

func (d *Driver) open(ctx context.Context) error {
	d.changing.Lock() // a restored file that the server does not read is tried again meanwhile
	defer d.changing.Unlock()
	for _, path := range d.Settings.files() {
		f, err := openFile(path)
		if err != nil {
			return &ParameterError{d.Settings.namesIn(path), err}
		}
		d.files[path] = f
		if f.record != nil && !d.adopt(f) {
			d.log.Warn("the agent was killed while the file was changed: restoring the original", "file", f.path)
			if err := errors.Join(d.awaitReload(), d.restore(ctx, f)); err != nil {
				d.log.Error("restoring failed", "error", err)
			}
		}
		if err := d.usable(f); err != nil {
			return err
		}
	}
	return nil
}

// adopt takes a changed file as the original, if somebody edited it before the agent started.
func (d *Driver) adopt(f *file) (adopted bool) {
	if _, err := f.read(); !errors.Is(err, errEdited) {
		return false
	}
	d.log.Warn("the agent was killed while the file was changed, and somebody edited it since: it is the original now", "file", f.path,
		"values", d.changes(f.lost))
	if d.server.line != nil { // else the file does not show its values: none is reported, and orders fail
		f.left, f.lost = false, nil
	}
	return true
}

// usable checks that every parameter of a file can be read and changed.
func (d *Driver) usable(f *file) error {
	content, err := f.content()
	if err != nil {
		return err
	}
	for _, name := range d.namesIn(f) {
		_, err := d.form.values(content, []string{name}, f.set())
		if err != nil && !errors.Is(err, errNotRunning) {
			return &ParameterError{[]string{name}, fmt.Errorf("%s: %w", f.path, err)}
		}
	}
	if d.server.line != nil {
		return nil
	}
	values, err := d.form.values(content, d.namesIn(f), f.set())
	if err == nil {
		_, err = d.form.with(content, values)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

// namesIn lists the parameters of a file.
func (d *Driver) namesIn(f *file) (names []string) {
	for _, p := range d.Parameters {
		if d.files[d.fileOf(p)] == f {
			names = append(names, p.Name)
		}
	}
	return names
}

// Close restores the original files and releases them.
func (d *Driver) Close(ctx context.Context) error {
	d.stopWatching()
	defer d.begin()()
	return errors.Join(d.restore(ctx, slices.Collect(maps.Values(d.files))...), d.release())
}

// Restore puts the original files back and makes the server read them. The driver goes on, and may change them again.
func (d *Driver) Restore(ctx context.Context) error {
	defer d.begin()()
	for _, f := range d.files {
		d.settled(f)
	}
	return d.restore(ctx, slices.Collect(maps.Values(d.files))...)
}

func (d *Driver) release() error {
	var errs []error
	for _, f := range d.files {
		errs = append(errs, f.unlock())
	}
	return errors.Join(errs...)
}

// restore puts the originals of changed files in place again, makes a running server read them, and only then removes the records of the
// originals. So if the agent is killed in between, its successor does all of this again. A server that is not running will read them when
// it starts.
func (d *Driver) restore(ctx context.Context, files ...*file) error {
	var errs []error
	for _, f := range files {
		switch {
		case f.record == nil:
		case f.gone():
			d.log.Warn("the changed file is no regular file any more: what is in its place stays", "file", f.path,
				"values", d.changes(f.record))
			errs = append(errs, f.forget())
		default:
			d.owe(f, string(f.record.Original), nil)
		}
	}
	err := d.catchUp(ctx)
	if _, stopped := d.running(); err != nil && stopped != nil {
		err = d.leave(files)
	}
	return errors.Join(append(errs, err)...)
}

// leave removes the records of restored files that a server will read when it starts.
func (d *Driver) leave(files []*file) error {
	var errs []error
	for _, f := range files {
		switch {
		case f.unread == nil:
		case f.leftAs(f.unread.content):
			d.log.Info("the original file is restored, and the server is not running", "file", f.path)
			errs = append(errs, f.forget())
		default:
			errs = append(errs, f.unread.why)
		}
	}
	return errors.Join(errs...)
}

// report logs once if somebody else edited a file.
func (d *Driver) report(f *file) {
	if f.left && !d.told[f.path] {
		d.told[f.path] = true
		d.log.Warn(errEdited.Error(), "file", f.path, "values", d.changes(f.lost))
	}
}

// changes says which values Quell gave the parameters of a file, and which they had before. After a person's edit nothing else tells it.
func (d *Driver) changes(r *record) string {
	var said []string
	for _, name := range slices.Sorted(maps.Keys(r.Values)) {
		if before := d.form.word(string(r.Original), name); before != number(r.Values[name]) {
			said = append(said, fmt.Sprintf("%s was set to %s, before it was %s", name, number(r.Values[name]), before))
		}
	}
	return strings.Join(said, "; ")
}

// Set changes a parameter and makes the server apply it. After an error, the file is as it was before, and so is the server. If the server
// ends within settleTime after Set, the file as it was before is put back. When all parameters of a file have their original values again,
// the original goes back.
func (d *Driver) Set(ctx context.Context, name string, value float64) error {
	defer d.begin()()
	p, err := d.parameter(name, value)
	if err != nil {
		return err
	}
	if err := d.refused(p, value); err != nil {
		return err
	}
	f := d.files[d.fileOf(p)]
	if err := errors.Join(f.same(), d.catchUp(ctx)); err != nil {
		return err
	}
	now, err := f.read()
	d.report(f)
	if err != nil {
		return err
	}
	values, err := d.form.values(now, d.namesIn(f), f.set())
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	awaitFile(d.PID)
	pid, err := d.alive()
	if err != nil {
		return err
	}
	if d.has(values, pid, name, value) {
		return d.insist(ctx, pid, name, value)
	}
	values[name] = value
	next, err := d.next(f, now, values)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	before := proven{now, f.record}
	if pid, err = d.change(ctx, f, now, next, values); err != nil {
		return err
	}
	if next == string(f.record.Original) { // the server has run with it before, and the file is the operator's again
		d.settled(f)
		return f.forget()
	}
	d.try(f, before, change{name, value}, pid)
	return nil
}

// has returns whether a parameter has a value already. If the file has a word such as auto, what the running server shows counts.
func (d *Driver) has(values map[string]float64, pid int, name string, value float64) bool {
	is, known := values[name]
	if !known {
		is, known = d.shows(pid)[name]
	}
	return known && is == value
}

// next returns the content of a file with these values. If they are those of before Quell changed the file, that is the original.
func (d *Driver) next(f *file, now string, values map[string]float64) (string, error) {
	originals, err := d.originals(f)
	if err != nil {
		return "", err
	}
	for name, value := range values {
		if was, known := originals[name]; !known || was != value {
			return d.form.with(now, values)
		}
	}
	return f.original()
}

// parameter finds a parameter and refuses a value outside its bounds.
func (d *Driver) parameter(name string, value float64) (Parameter, error) {
	names := make([]string, len(d.Parameters))
	for i, p := range d.Parameters {
		names[i] = p.Name
		if p.Name != name {
			continue
		}
		switch {
		case !(value >= p.Min && value <= p.Max) && !d.isOriginal(p, value):
			return p, fmt.Errorf("%g is outside the bounds in this agent's configuration, %g to %g", value, p.Min, p.Max)
		case d.server.line != nil && value != math.Trunc(value):
			return p, fmt.Errorf("%g is no whole number", value)
		}
		return p, nil
	}
	return Parameter{}, fmt.Errorf("this agent's configuration does not list %s; it lists %s", name, strings.Join(names, ", "))
}

// isOriginal returns whether a parameter had this value before Quell changed the file, or the server showed it. Such a value may come back
// although it is outside the bounds.
func (d *Driver) isOriginal(p Parameter, value float64) bool {
	f := d.files[d.fileOf(p)]
	originals, err := d.originals(f)
	was, known := originals[p.Name]
	shown, counted := d.shown(f)[p.Name]
	return err == nil && known && was == value || counted && shown == value
}

// originals returns the values of a file's parameters of before Quell changed it. For words such as auto they are what the server showed.
func (d *Driver) originals(f *file) (map[string]float64, error) {
	content, err := f.original()
	if err != nil {
		return nil, err
	}
	values, err := d.form.values(content, d.namesIn(f), nil)
	if err != nil {
		return nil, err
	}
	for name, v := range d.shown(f) {
		if _, number := values[name]; !number {
			values[name] = v
		}
	}
	return values, nil
}

// shown returns the parameters of a file that the running server showed before Quell changed the file.
func (d *Driver) shown(f *file) map[string]float64 {
	if f.record != nil {
		return f.record.Shown
	}
	pid, err := d.running()
	if err != nil {
		return nil
	}
	shown, names := d.shows(pid), d.namesIn(f)
	maps.DeleteFunc(shown, func(name string, _ float64) bool { return !slices.Contains(names, name) })
	return shown
}

// insist makes the server read its files again if it shows another value than the file has.
func (d *Driver) insist(ctx context.Context, pid int, name string, value float64) error {
	if shown, known := d.shows(pid)[name]; !known || shown == value {
		return nil
	}
	_, err := d.reload(ctx)
	return err
}

// shows returns the parameters that the running server shows.
func (d *Driver) shows(pid int) map[string]float64 {
	if n := len(d.workers(pid)); n > 0 && d.server.counts != "" {
		return map[string]float64{d.server.counts: float64(n)}
	}
	return nil
}

// workers lists the server's processes that take new requests; none if they are not known.
func (d *Driver) workers(pid int) []string {
	if d.server.workers == nil || pid == 0 {
		return nil
	}
	return d.server.workers(pid)
}

// change replaces a file's content, if the server's check accepts it, and makes the server read it. It returns the process that has read
// it. If that fails, everything is undone.
func (d *Driver) change(ctx context.Context, f *file, now, next string, values map[string]float64) (pid int, err error) {
	candidate, err := f.draft(next)
	if err != nil {
		return 0, fmt.Errorf("writing the new file: %w", err)
	}
	if err := d.check(ctx, f, candidate); err != nil {
		return 0, errors.Join(err, os.Remove(candidate))
	}
	earlier := f.record
	if err := f.place(candidate, now, next, values, d.shown(f)); err != nil {
		err = fmt.Errorf("replacing %s: %w", f.path, err)
		if f.record != earlier { // the record says that the file may have changed
			err = errors.Join(err, f.back(now, earlier))
		}
		return 0, err
	}
	if pid, err = d.reload(ctx); err != nil {
		return 0, d.unchange(ctx, f, now, earlier, err)
	}
	return pid, nil
}

// unchange undoes a change that the server did not read. The server that runs now reads the old file, even if it is another process: that
// one may have started with the new file. unchange returns what is to be said about the change.
func (d *Driver) unchange(ctx context.Context, f *file, content string, earlier *record, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	d.owe(f, content, earlier)
	switch err := d.catchUp(ctx); {
	case err != nil:
		return fmt.Errorf("the server did not read the new file: %w; %w", why, err)
	case f.left:
		return fmt.Errorf("the server did not read the new file: %w; and the old file could not be restored: %s: %w", why, f.path,
			errEdited)
	}
	return fmt.Errorf("the server did not read the new file, so the old one is back and in force: %w", why)
}

// begin starts a change. Until the returned function is called, the driver's files are the caller's alone, and InForce returns what was in
// force before.
func (d *Driver) begin() (end func()) {
	d.changing.Lock()
	d.mu.Lock()
	defer d.mu.Unlock()
	values, err := d.readBack()
	d.before = &known{values, err}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.before = nil
		d.changing.Unlock()
	}
}

// known is the result of reading back.
type known struct {
	values map[string]float64
	err    error
}

// InForce reads the parameters from the files. If the running server shows others, those count. During a change, InForce does not wait for
// its end.
func (d *Driver) InForce(context.Context) (map[string]float64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.before != nil {
		return maps.Clone(d.before.values), d.before.err
	}
	return d.readBack()
}

// readBack reads the parameters that are in force.
func (d *Driver) readBack() (map[string]float64, error) {
	pid, err := d.alive()
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for _, path := range slices.Sorted(maps.Keys(d.files)) {
		f := d.files[path]
		if err := f.same(); err != nil {
			return nil, err
		}
		content, err := f.read()
		if errors.Is(err, errEdited) {
			d.report(f)
		} else if err != nil {
			return nil, err
		}
		if f.unread != nil {
			return nil, f.unread.why
		}
		if f.left && d.server.line == nil {
			return nil, err // the file is not made from the template any more
		}
		values, err := d.form.values(content, d.namesIn(f), f.set())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		maps.Copy(all, values)
	}
	for name, v := range d.shows(pid) {
		if slices.ContainsFunc(d.Parameters, func(p Parameter) bool { return p.Name == name }) {
			all[name] = v
		}
	}
	return all, nil
}
