package sensor

import "io/fs"

// diskWaits are how many tasks of a group waited for disks at several moments. Linux also adds up how long each task waited
// (/proc/PID/stat, field 42), but only if the operator switched that on, and Linux 6.18 was seen to add times in which a task only slept.
type diskWaits struct {
	sum, moments int
	mean         *float64 // of the last window with enough moments; nil: there was none
}

// fewestMoments is the number of moments from which a mean is made. If a window is too short for these, moments of later ones are added.
const fewestMoments = 3

// look counts the tasks that wait at present. The agent's own do not count: its probes of a disk wait nearly all the time.
func (w *diskWaits) look(l *groupLayout) {
	tasks := &taskReader{root: l.root, left: mostLooked}
	n, ok := tasks.count(l, func(id string, state byte) bool { return state == diskWaiting && !isOwn(l.root, id) })
	if ok {
		w.sum += n
		w.moments++
	}
}

// take returns the mean number of waiting tasks in this window or, if it was too short, the last one that is known; nil if none is.
func (w *diskWaits) take() *float64 {
	if w.moments >= fewestMoments {
		*w = diskWaits{mean: new(float64(w.sum) / float64(w.moments))}
	}
	return w.mean
}

// isOwn returns whether a task is one of this process.
func isOwn(root fs.FS, id string) bool {
	_, err := fs.Stat(root, "proc/self/task/"+id)
	return err == nil
}
