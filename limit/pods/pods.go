// Package pods limits the processors of a service's pods on a node of Kubernetes. The kubelet owns the pods' control groups, so nothing is
// written there: the limits of their containers are changed in place, by the API.
//
// A limit moves between what a container requests and what its owner set. Requests never change: the scheduler would give away what they
// free, and then they could not be put back. So pods whose requests equal their limits are refused, and those without limits, because the
// API takes none away again.
package pods

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/limit"
)

// Container is one container of a pod, in thousandths of a processor.
type Container struct {
	Name           string
	Request, Limit int64
}

// Pod is a pod as the API server shows it.
type Pod struct {
	Namespace, Name, UID string
	Containers           []Container // those that run as long as the pod does
	Refused              string      // why its limits cannot be changed; "": they can
	Pending              string      // why its node has not carried out the last change; "": it has, or is about to
	Changing             bool        // its node is about to
}

// Cluster is the API server.
type Cluster interface {
	limit.Containers
	// Pod returns a pod of the service.
	Pod(name string) (Pod, error)
}

const (
	pace   = 10 * time.Second // between two changes of a pod's limit, and between two attempts at one that fails
	moves  = 0.05             // a limit that differs by less than this fraction is left alone
	slowly = 30 * time.Second // a node that has not carried out a change for so long is told
)

// Limiter puts a policy's limits in force. It is not safe for concurrent use.
type Limiter struct {
	cluster *patient
	limits  *limit.Limits
	now     func() time.Time
	caps    map[string]*capped // by pod
}

// capped is a pod for which there was a limit.
type capped struct {
	uid    string
	millis float64 // in force or to be put in force; 0: none
	at     time.Time
	left   error // somebody else has changed its limits: it is left alone
}

// New returns a limiter that keeps what was there before in the folder records.
func New(c Cluster, records string, now func() time.Time) *Limiter {
	p := &patient{Cluster: c, now: now, failed: map[string]failure{}}
	return &Limiter{p, limit.New(limit.Options{Records: records, Containers: p}), now, map[string]*capped{}}
}

// Restore puts back what was there before the limits that a killed agent left.
func Restore(c Cluster, records string) ([]limit.Target, error) {
	return limit.Restore(limit.Options{Records: records, Containers: c})
}

// Close puts back what was there before.
func (l *Limiter) Close() error {
	clear(l.cluster.failed)
	return l.limits.Close()
}

// Apply implements host.Limiter; groups are pods, by name.
func (l *Limiter) Apply(limits []quell.Limit) map[string]error {
	failed, wanted := map[string]error{}, map[string]float64{}
	for _, one := range limits {
		if one.Resource != quell.CPU || one.Unit == quell.WeightUnit {
			failed[one.Instance] = fmt.Errorf("a pod has only limits of processors, no %s: choose a policy that sets these, as acs with by: caps",
				limit.TargetOf(one.Instance, one).What())
			continue
		}
		wanted[one.Instance] = one.Value * 1000
	}
	targets, pods := map[limit.Target]float64{}, map[string]Pod{}
	for _, name := range l.names(wanted) {
		pod, err := l.cluster.Pod(name)
		if err == nil {
			pods[name] = pod
			err = l.one(pod, wanted[name], targets)
		} else if errors.Is(err, fs.ErrNotExist) {
			delete(l.caps, name)
		}
		if err != nil && wanted[name] > 0 {
			failed[name] = err
		}
	}
	for t, err := range l.limits.Apply(targets) {
		name := strings.Split(t.Group, "/")[1]
		err = fmt.Errorf("%s: %w", t, err)
		if c := l.caps[name]; c != nil && errors.Is(err, limit.ErrChanged) {
			err = fmt.Errorf("its limits are left alone until it is replaced: %w", err)
			c.left = err
		}
		failed[name] = err
	}
	for name, pod := range pods {
		if failed[name] == nil && l.caps[name].millis > 0 {
			if err := l.unfinished(pod); err != nil {
				failed[name] = err
			}
		}
	}
	return failed
}

// names lists the pods that have a limit or are to get one.
func (l *Limiter) names(wanted map[string]float64) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(l.caps)), maps.Keys(wanted))
	slices.Sort(all)
	return slices.Compact(all)
}

// one adds the limits of a pod's containers to targets. It returns why they are not what is wanted.
func (l *Limiter) one(pod Pod, wanted float64, targets map[limit.Target]float64) error {
	c := l.caps[pod.Name]
	if c == nil || c.uid != pod.UID {
		c = &capped{uid: pod.UID}
		l.caps[pod.Name] = c
	}
	if c.left != nil {
		return c.left
	}
	own := l.before(pod)
	var err error
	switch {
	case pod.Refused != "":
		wanted, err = 0, errors.New(pod.Refused)
	case wanted > 0 && room(own) == 0:
		wanted, err = 0, errors.New("its containers request as many processors as their limits are: Quell does not change requests")
	case wanted >= float64(sum(own, func(c Container) int64 { return c.Limit })):
		wanted = 0
	}
	if now := l.now(); far(c.millis, wanted) && now.Sub(c.at) >= pace {
		c.millis, c.at = wanted, now
	}
	if c.millis == 0 {
		return err
	}
	divide(own, c.millis, func(name string, millis float64) { targets[target(pod, name)] = millis / 1000 })
	if least := sum(own, Container.least); c.millis < float64(least) {
		return fmt.Errorf("it is limited to %.2f processors, which it requests, not to %.2f: Quell does not change requests", float64(least)/1000,
			c.millis/1000)
	}
	return err
}

func target(pod Pod, container string) limit.Target {
	return limit.Target{Group: pod.Namespace + "/" + pod.Name + "/" + container, Resource: quell.CPU, Form: limit.Resize}
}

// before returns the containers of a pod with the limits that their owner set.
func (l *Limiter) before(pod Pod) []Container {
	own := slices.Clone(pod.Containers)
	for i, c := range own {
		if processors, ok := l.limits.Before(target(pod, c.Name)); ok {
			own[i].Limit = int64(math.Round(processors * 1000))
		}
	}
	return own
}

// far returns whether a limit differs so much from the one in force that it is changed; 0: none.
func far(now, next float64) bool {
	return (now == 0) != (next == 0) || math.Abs(next-now) > moves*now
}

// least is the least limit of a container.
func (c Container) least() int64 { return min(c.Limit, max(c.Request, limit.LeastMillis)) }

func sum(list []Container, of func(Container) int64) (total int64) {
	for _, c := range list {
		total += of(c)
	}
	return total
}

// room is by how much the limits of containers can be lowered together.
func room(list []Container) int64 {
	return sum(list, func(c Container) int64 { return c.Limit - c.least() })
}

// divide divides a pod's limit among its containers: each gets what it requests, and the same part of what it may have beyond that.
func divide(list []Container, millis float64, set func(container string, millis float64)) {
	part := (millis - float64(sum(list, Container.least))) / float64(room(list))
	part = min(max(part, 0), 1)
	for _, c := range list {
		if c.Limit > c.least() {
			set(c.Name, float64(c.least())+part*float64(c.Limit-c.least()))
		}
	}
}

// unfinished returns why the node of a pod has not carried out the limit.
func (l *Limiter) unfinished(pod Pod) error {
	switch since := l.now().Sub(l.caps[pod.Name].at); {
	case pod.Pending != "":
		return fmt.Errorf("its node has not carried out the limit: %s", pod.Pending)
	case pod.Changing && since >= slowly:
		return fmt.Errorf("its node has not carried out the limit for %v", since.Round(time.Second))
	}
	return nil
}

// patient does not ask again at once for what failed. While the API server does not answer, one container is tried for all.
type patient struct {
	Cluster
	now    func() time.Time
	failed map[string]failure // by container; "": no answer
}

type failure struct {
	at  time.Time
	err error
}

// SetLimit implements limit.Containers.
func (p *patient) SetLimit(container string, from, to int64) error {
	for _, about := range []string{"", container} {
		if last, ok := p.failed[about]; ok && p.now().Sub(last.at) < pace {
			return last.err
		}
		delete(p.failed, about)
	}
	err := p.Cluster.SetLimit(container, from, to)
	if silent := net.Error(nil); errors.As(err, &silent) {
		p.failed[""] = failure{p.now(), err}
	} else if err != nil {
		p.failed[container] = failure{p.now(), err}
	}
	return err
}
