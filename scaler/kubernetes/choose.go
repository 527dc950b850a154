package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// uids are those of pods that are to be stopped, by their names.
type uids map[string]types.UID

// only returns the names without those that another pod has now than when the name was first asked for.
func (u uids) only(pods []*corev1.Pod, names []string) (same []string) {
	for _, pod := range pods {
		if !slices.Contains(names, pod.Name) {
			continue
		}
		u[pod.Name] = cmp.Or(u[pod.Name], pod.UID)
		if u[pod.Name] == pod.UID {
			same = append(same, pod.Name)
		}
	}
	return same
}

// choice is how pods are stopped so that the platform stops these and no other ones.
type choice struct {
	chosen []*corev1.Pod // those that run and are to be stopped
	ended  []*corev1.Pod // those that have ended: they do not count as replicas
	unmark []*corev1.Pod // those that were to be stopped once, and are not any more
	fewer  int           // by how much the number of replicas is reduced
}

// choose decides how the pods with these names are stopped. replicas is the number in force, which was read before the pods. Pods that are
// not listed are gone, and pods that are being deleted need nothing.
func choose(pods []*corev1.Pod, names []string, replicas int) (c choice, err error) {
	var others []*corev1.Pod
	for _, pod := range pods {
		wanted := slices.Contains(names, pod.Name)
		switch {
		case wanted && active(pod):
			c.chosen = append(c.chosen, pod)
		case wanted && pod.DeletionTimestamp == nil:
			c.ended = append(c.ended, pod)
		case active(pod):
			others = append(others, pod)
		}
	}
	if len(c.chosen) == 0 {
		return c, nil
	}
	// What exceeds the number of replicas is being stopped already: a controller that was killed after it reduced the number does not
	// reduce it again.
	surplus := max(0, len(c.chosen)+len(others)-replicas)
	c.fewer = max(0, len(c.chosen)-surplus)
	switch owner := ownerOf(c.chosen[0]); owner.Kind {
	case "ReplicaSet", "ReplicationController", "CloneSet":
		for _, pod := range others {
			switch {
			case cost(pod) != lowestCost:
			case surplus > 0:
				return c, fmt.Errorf("%s is stopped when %s is gone, which Kubernetes is stopping", c.chosen[0].Name, pod.Name)
			default:
				c.unmark = append(c.unmark, pod)
			}
		}
		return c, c.byCost(others)
	case "StatefulSet":
		return c, c.byOrdinal(others, owner.Name)
	default:
		return c, fmt.Errorf("%s is managed by %s, and only pods of ReplicaSets and the highest of StatefulSets can be stopped by choice",
			c.chosen[0].Name, cmp.Or(strings.TrimSpace(owner.Kind+" "+owner.Name), "nothing"))
	}
}

// turn returns which of the chosen pods are stopped now, in the order in which the platform can stop them: up to the first that is ready.
func (c *choice) turn() (now, later []string) {
	order := slices.Clone(c.chosen)
	slices.SortStableFunc(order, func(a, b *corev1.Pod) int {
		if ownerOf(a).Kind == "StatefulSet" {
			return cmp.Compare(ordinal(b), ordinal(a))
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(cost(a), cost(b))) // one with the lowest cost may be going already
	})
	ready := false
	for _, pod := range order {
		if ready {
			later = append(later, pod.Name)
			continue
		}
		now, ready = append(now, pod.Name), isReady(pod)
	}
	return now, later
}

// byCost returns why a ReplicaSet could stop other pods although the chosen ones have the lowest cost.
func (c *choice) byCost(others []*corev1.Pod) error {
	highest := slices.MaxFunc(c.chosen, func(a, b *corev1.Pod) int { return rank(a) - rank(b) })
	for _, pod := range slices.Concat(c.chosen, others) {
		if ownerOf(pod).UID != ownerOf(highest).UID {
			return fmt.Errorf("a rollout is under way (pods of %s and %s): which pods are stopped cannot be chosen until it ends",
				ownerOf(highest).Name, ownerOf(pod).Name)
		}
	}
	for _, pod := range others {
		if rank(pod) < rank(highest) {
			return fmt.Errorf("%s is not ready, and Kubernetes would stop it before %s: %s is stopped when all others are ready",
				pod.Name, highest.Name, highest.Name)
		}
	}
	return nil
}

// byOrdinal returns why a StatefulSet would stop other pods than the chosen ones.
func (c *choice) byOrdinal(others []*corev1.Pod, set string) error {
	lowest := slices.MinFunc(c.chosen, func(a, b *corev1.Pod) int { return ordinal(a) - ordinal(b) })
	for _, pod := range others {
		if ordinal(pod) > ordinal(lowest) {
			return fmt.Errorf("StatefulSet %s can only lose its highest ordinals: %s cannot be stopped while %s runs", set, lowest.Name, pod.Name)
		}
	}
	return nil
}
