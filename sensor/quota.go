package sensor

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/quellhq/quell/internal/cgroup"
)

// Quota is the processor quota of the reading process's own control group, not of those above it: time that it stops a group is not
// the neighbours' doing.
type Quota struct {
	layout *groupLayout // nil where the machine has no control groups
	cores  float64
}

// OwnQuota finds the own group on a machine whose proc and sys are below root. A machine without control groups has no quota.
func OwnQuota(root fs.FS) (*Quota, error) {
	account := cgroupAccount{root: root, name: OwnCgroup}
	trees, err := cgroup.Find(root)
	if err != nil {
		return nil, err
	}
	if _, ok := trees.Of("cpu"); !ok {
		return &Quota{}, nil
	}
	layout, err := account.layout()
	if err != nil {
		return nil, fmt.Errorf("finding the own processor quota: %w", err)
	}
	q := &Quota{layout: layout}
	q.cores, err = layout.quota(layout.cpu)
	if errors.Is(err, fs.ErrNotExist) { // the hierarchy's root has none
		return &Quota{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the own processor quota: %w", err)
	}
	return q, nil
}

// Cores is the quota in cores; 0 is none.
func (q *Quota) Cores() float64 { return q.cores }

// Count returns in how many of its periods the quota has stopped the group so far. A quota that is set later counts, too.
func (q *Quota) Count() (uint64, error) {
	if q.layout == nil {
		return 0, nil
	}
	stat, err := q.layout.stat(q.layout.cpu)
	if err != nil {
		return 0, fmt.Errorf("reading how often the own processor quota stopped this group: %w", err)
	}
	return stat["nr_throttled"], nil
}
