package sim

// job is a piece of work in service.
type job struct {
	end   float64 // the attained service, or the time, at which it is done
	ref   int32   // number of the request that waits for it
	owner owner
}

// before orders jobs. If ends are equal, it compares owner and reference, so that the order never depends on the heap's history.
func (j job) before(k job) bool {
	if j.end != k.end {
		return j.end < k.end
	}
	if j.owner != k.owner {
		return j.owner < k.owner
	}
	return j.ref < k.ref
}

// jobHeap is a heap in which a node has four children: it is half as deep as a binary heap, and the children of a node share a cache
// line.
type jobHeap []job

func (h *jobHeap) push(j job) {
	*h = append(*h, j)
	h.up(len(*h) - 1)
}

func (h *jobHeap) pop() job {
	top := (*h)[0]
	h.remove(0)
	return top
}

func (h *jobHeap) remove(i int) {
	jobs := *h
	last := len(jobs) - 1
	moved := jobs[last]
	*h = jobs[:last]
	if i == last {
		return
	}
	jobs[i] = moved
	h.down(i)
	h.up(i)
}

func (h *jobHeap) up(i int) {
	jobs := *h
	j := jobs[i]
	for i > 0 {
		parent := (i - 1) / 4
		if !j.before(jobs[parent]) {
			break
		}
		jobs[i] = jobs[parent]
		i = parent
	}
	jobs[i] = j
}

func (h *jobHeap) down(i int) {
	jobs := *h
	j := jobs[i]
	for {
		first := 4*i + 1
		if first >= len(jobs) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(jobs)); c++ {
			if jobs[c].before(jobs[least]) {
				least = c
			}
		}
		if !jobs[least].before(j) {
			break
		}
		jobs[i] = jobs[least]
		i = least
	}
	jobs[i] = j
}

// workQueue is a queue (first in, first out) on a slice. The memory of jobs that were taken from its front is freed from time to time.
type workQueue struct {
	items []waitingWork
	head  int
}

func (q *workQueue) push(w waitingWork) { q.items = append(q.items, w) }

func (q *workQueue) pop() (waitingWork, bool) {
	if q.head == len(q.items) {
		return waitingWork{}, false
	}
	w := q.items[q.head]
	q.head++
	if q.head > 64 && q.head > len(q.items)/2 {
		q.items = append(q.items[:0], q.items[q.head:]...)
		q.head = 0
	}
	return w, true
}

func (q *workQueue) remove(ref int32) (waitingWork, bool) {
	for i := q.head; i < len(q.items); i++ {
		if w := q.items[i]; w.ref == ref {
			q.items = append(q.items[:i], q.items[i+1:]...)
			return w, true
		}
	}
	return waitingWork{}, false
}
