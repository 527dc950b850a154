package pods

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/sensor"
)

// Pod is a pod of this machine.
type Pod struct {
	Namespace, Name, UID string
}

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Node reads the pods of one machine. It is not safe for concurrent use.
type Node struct {
	root   fs.FS
	groups *sensor.Groups
}

// NewNode returns a reader of the machine whose proc and sys are below root.
func NewNode(root fs.FS) (*Node, error) {
	groups, err := sensor.NewGroups(root, nil)
	return &Node{root, groups}, err
}

// Sample returns what was measured of each pod since the previous call, by uid, and what could not be read. A pod without a control group,
// or that is read for the first time, has no observation.
func (n *Node) Sample(now time.Time, pods []Pod) (map[string]quell.Observation, []sensor.Failure) {
	byName, failures, err := n.choose(pods, Pod.String)
	if err != nil {
		return nil, append(failures, sensor.Failure{Sensor: "pods", Err: err})
	}
	s, failed := n.groups.Sample(now)
	observations := map[string]quell.Observation{}
	for _, in := range s.Instances {
		if p, ok := byName[in.ID]; ok && in.Observation != nil {
			observations[p.UID] = *in.Observation
		}
	}
	if s.Machine != nil && s.Machine.Sched != nil {
		compare(observations, byName, s.Machine.Sched.Cores)
	}
	return observations, append(failures, failed...)
}

// choose finds the control groups of these pods, which are then read under the names that name gives. It returns the pods by these names,
// and those that were not found. An error means that none can be found.
func (n *Node) choose(pods []Pod, name func(Pod) string) (byName map[string]Pod, missing []sensor.Failure, err error) {
	trees, err := cgroup.Find(n.root)
	if err != nil {
		return nil, nil, err
	}
	tree, ok := trees.Of("cpu")
	if !ok {
		return nil, nil, errors.New("there are no control groups for processors below agent.root")
	}
	paths, wanted := find(n.root, tree), []sensor.Group{}
	byName = map[string]Pod{}
	for _, p := range pods {
		path, ok := paths[p.UID]
		if !ok {
			missing = append(missing, sensor.Failure{Sensor: "pod " + p.String(), Err: fmt.Errorf("no control group has its uid %s", p.UID)})
			continue
		}
		byName[name(p)] = p
		wanted = append(wanted, sensor.Group{Name: name(p), Path: path})
	}
	return byName, missing, n.groups.Want(wanted)
}

// Tenants reads pods of one namespace, by name, as the tenants of a machine for a policy. It is not safe for concurrent use.
type Tenants struct {
	node *Node
	pods func() ([]Pod, error)
}

// NewTenants returns a reader of the machine whose proc and sys are below root. pods returns those that are there, and why that may be out
// of date.
func NewTenants(root fs.FS, pods func() ([]Pod, error)) (*Tenants, error) {
	node, err := NewNode(root)
	return &Tenants{node, pods}, err
}

// Sample implements host.Reader.
func (t *Tenants) Sample(now time.Time) (quell.Snapshot, []sensor.Failure) {
	list, err := t.pods()
	_, failures, wrong := t.node.choose(list, func(p Pod) string { return p.Name })
	if err := errors.Join(err, wrong); err != nil {
		failures = append(failures, sensor.Failure{Sensor: "pods", Err: err})
	}
	s, more := t.node.groups.Sample(now)
	return s, append(failures, more...)
}

// Subsample implements host.Reader.
func (t *Tenants) Subsample(now time.Time) { t.node.groups.Subsample(now) }

// leastTop is the least use of another pod, a fraction of the machine's processors, that is worth telling.
const leastTop = 0.02

// compare enters the use of each pod, of its quota or else of the machine with that many processors, and which other pod uses most.
func compare(observations map[string]quell.Observation, pods map[string]Pod, cores float64) {
	if cores <= 0 {
		return
	}
	var first, second quell.User
	for name, p := range pods {
		o, ok := observations[p.UID]
		if !ok {
			continue
		}
		one := quell.User{Name: name, Use: min(1, o.Sched.RunS/o.WindowS/cores)}
		if more(one, first) {
			first, second = one, first
		} else if more(one, second) {
			second = one
		}
	}
	for name, p := range pods {
		o, ok := observations[p.UID]
		if !ok {
			continue
		}
		if o.Sched.Group = true; o.Sched.Cores == 0 {
			o.Sched.Cores = cores
		}
		o.Utilization = map[quell.Resource]float64{quell.CPU: min(1, o.Sched.RunS/o.WindowS/o.Sched.Cores)}
		top := first
		if name == first.Name {
			top = second
		}
		if top.Use >= leastTop {
			o.Top = map[quell.Resource]quell.User{quell.CPU: top}
		}
		observations[p.UID] = o
	}
}

// more returns whether a uses more than b; names decide between equals.
func more(a, b quell.User) bool { return a.Use > b.Use || a.Use == b.Use && a.Name < b.Name }
