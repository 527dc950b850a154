package sensor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
)

// setFiles name the processors that a group may use. The first one that exists is read. The effective set, which some kernels of version 1
// lack, has only processors that are online.
var setFiles = map[bool][]string{
	true:  {"cpuset.cpus.effective"},
	false: {"cpuset.effective_cpus", "cpuset.cpus"},
}

// room returns how many processors the group can use: the least of its quotas and of the sets of processors, with those of the groups
// above it. 0 means that neither limits it.
func (l *groupLayout) room(quota float64) (float64, error) {
	set, err := l.leastSet()
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading its set of processors: %w", err)
	case set == 0:
		return quota, nil
	case quota == 0:
		return float64(set), nil
	}
	return math.Min(quota, float64(set)), nil
}

// leastSet returns the size of the smallest set of processors of the group and of those above it, 0 if there is none. A group without a set
// of its own uses that of the group above it.
func (l *groupLayout) leastSet() (least int, err error) {
	if l.sets == "" {
		return 0, nil
	}
	for folder := l.sets; len(folder) >= len(l.setsTop) && folder != "."; folder = path.Dir(folder) {
		n, err := l.set(folder)
		if err != nil {
			return 0, err
		}
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least, nil
}

// set returns the size of one group's set, 0 if it has none.
func (l *groupLayout) set(folder string) (int, error) {
	for _, name := range setFiles[l.unified] {
		text, err := fs.ReadFile(l.root, path.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		return parseCPUList(text)
	}
	return 0, nil
}

// parseCPUList counts the processors in a list such as "0-1,8,10-11". An empty list has none.
func parseCPUList(text []byte) (n int, err error) {
	const mostProcessors = 1 << 20 // far above real numbers; keeps the sum from overflowing
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return 0, nil
	}
	for part := range bytes.SplitSeq(text, []byte(",")) {
		from, to, isRange := bytes.Cut(part, []byte("-"))
		if !isRange {
			to = from
		}
		first, errFirst := strconv.ParseUint(string(from), 10, 20)
		last, errLast := strconv.ParseUint(string(to), 10, 20)
		if err := errors.Join(errFirst, errLast); err != nil || last < first {
			return 0, fmt.Errorf("%q is no list of processors", text)
		}
		if n += int(last-first) + 1; n > mostProcessors {
			return 0, fmt.Errorf("%q has too many processors", text)
		}
	}
	return n, nil
}
