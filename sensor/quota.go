package sensor

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/quellhq/quell/internal/cgroup"
)

// Quota is the processor quota of the reading process's own control group, without those of the groups above it. With it, time in which the
// quota stopped the group is not mistaken for interference by neighbours.
type Quota struct {
	layout *groupLayout // nil if the machine has no control groups
	cores  float64
}

// OwnQuota returns the quota of this process's group on a machine whose proc and sys are below root. A machine without control groups has
// no quota.
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
	if errors.Is(err, fs.ErrNotExist) { // the hierarchy's root has no quota
		return &Quota{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the own processor quota: %w", err)
	}
	return q, nil
}

// Cores returns the quota in cores, 0 if there is none.
func (q *Quota) Cores() float64 { return q.cores }

// Stopped returns for how long the quota has stopped the group so far, added up over its processors. It also counts for a quota that was
// set after the call of OwnQuota.
func (q *Quota) Stopped() (time.Duration, error) {
	if q.layout == nil {
		return 0, nil
	}
	stat, err := q.layout.stat(q.layout.cpu)
	if err != nil {
		return 0, fmt.Errorf("reading how long the own processor quota stopped this group: %w", err)
	}
	return stopped(stat), nil
}
