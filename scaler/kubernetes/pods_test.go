package kubernetes

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// pod makes a ready pod of the set, changed by functions.
func pod(kind, set, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	controls := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{
			{Kind: kind, Name: set, UID: types.UID(set), Controller: &controls},
		}},
		Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func unready(p *corev1.Pod) { p.Status.Conditions = nil }
func pending(p *corev1.Pod) {
	p.Status.Phase, p.Spec.NodeName, p.Status.Conditions = corev1.PodPending, "", nil
}
func failed(p *corev1.Pod)   { p.Status.Phase = corev1.PodFailed }
func deleting(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
func marked(p *corev1.Pod)   { p.Annotations = map[string]string{costName: fmt.Sprint(math.MinInt32)} }

func TestStateOfPods(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		was  bool
		want quell.State
	}{
		{"ready", pod("ReplicaSet", "web", "a"), false, quell.Ready},
		{"not ready yet", pod("ReplicaSet", "web", "a", unready), false, quell.Starting},
		{"not ready any more", pod("ReplicaSet", "web", "a", unready), true, quell.Failed},
		{"no node yet", pod("ReplicaSet", "web", "a", pending), false, quell.Starting},
		{"ended", pod("ReplicaSet", "web", "a", failed), true, quell.Failed},
		{"is being deleted, and still ready", pod("ReplicaSet", "web", "a", deleting), true, quell.Draining},
	} {
		if got := stateOf(c.pod, c.was); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestChoice(t *testing.T) {
	web := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		return pod("ReplicaSet", "web", name, change...)
	}
	set := func(name string) *corev1.Pod { return pod("StatefulSet", "web", name) }
	for _, c := range []struct {
		name     string
		pods     []*corev1.Pod
		stop     []string
		replicas int
		fewer    int
		err      string
	}{
		{"one of two", []*corev1.Pod{web("a"), web("b")}, []string{"a"}, 2, 1, ""},
		{"one that is gone", []*corev1.Pod{web("a")}, []string{"x"}, 1, 0, ""},
		{"one that is being deleted", []*corev1.Pod{web("a", deleting), web("b")}, []string{"a"}, 1, 0, ""},
		{"one that has ended", []*corev1.Pod{web("a", failed), web("b")}, []string{"a"}, 1, 0, ""},
		{"the number was reduced already", []*corev1.Pod{web("a"), web("b")}, []string{"a"}, 1, 0, ""},
		{"another one is going", []*corev1.Pod{web("a"), web("b", marked)}, []string{"a"}, 1, 0, "a is stopped when b is gone"},
		{"others are still to come", []*corev1.Pod{web("a"), web("b")}, []string{"a"}, 3, 1, ""},
		{"another one is not ready", []*corev1.Pod{web("a"), web("b", unready)}, []string{"a"}, 2, 1, "b is not ready"},
		{"the one that is not ready", []*corev1.Pod{web("a"), web("b", pending)}, []string{"b"}, 2, 1, ""},
		{"a rollout", []*corev1.Pod{web("a"), pod("ReplicaSet", "new", "b")}, []string{"a"}, 2, 1, "a rollout is under way"},
		{"the highest ordinals", []*corev1.Pod{set("w-9"), set("w-10"), set("w-8")}, []string{"w-10", "w-9"}, 3, 2, ""},
		{"a lower ordinal", []*corev1.Pod{set("w-9"), set("w-10")}, []string{"w-9"}, 2, 1, "w-9 cannot be stopped while w-10 runs"},
		{"pods of a Job", []*corev1.Pod{pod("Job", "web", "a")}, []string{"a"}, 1, 1, "managed by Job web"},
	} {
		got, err := choose(c.pods, c.stop, c.replicas)
		if got.fewer != c.fewer || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d fewer, %v; want %d, %q", c.name, got.fewer, err, c.fewer, c.err)
		}
	}
}

// A pod that gets the name of one that is being stopped is left alone.
func TestANameThatAnotherPodGets(t *testing.T) {
	another := func(p *corev1.Pod) { p.UID = "another" }
	a, b, c := pod("StatefulSet", "w", "w-0"), pod("StatefulSet", "w", "w-1"), pod("StatefulSet", "w", "w-2")
	meant := uids{}
	for _, look := range []struct {
		pods []*corev1.Pod
		want string
	}{
		{[]*corev1.Pod{a, b, c}, "[w-1 w-2]"},
		{[]*corev1.Pod{a, b, pod("StatefulSet", "w", "w-2", another)}, "[w-1]"},
		{[]*corev1.Pod{a, b}, "[w-1]"},
		{[]*corev1.Pod{a, pod("StatefulSet", "w", "w-1", another)}, "[]"},
	} {
		if got := fmt.Sprint(meant.only(look.pods, []string{"w-1", "w-2"})); got != look.want {
			t.Errorf("%s, want %s", got, look.want)
		}
	}
}

// TestTurn: pods that are ready go one by one, those that are going already first; the others go with the first one.
func TestTurn(t *testing.T) {
	web := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		return pod("ReplicaSet", "web", name, change...)
	}
	set := func(name string) *corev1.Pod { return pod("StatefulSet", "web", name) }
	for _, c := range []struct {
		chosen []*corev1.Pod
		want   string
	}{
		{[]*corev1.Pod{web("a")}, "[a] []"},
		{[]*corev1.Pod{web("a"), web("b"), web("c", marked)}, "[c] [a b]"},
		{[]*corev1.Pod{web("a"), web("b", unready), web("c", pending)}, "[c b a] []"},
		{[]*corev1.Pod{web("b", unready), web("c", pending)}, "[c b] []"},
		{[]*corev1.Pod{set("w-9"), set("w-10"), set("w-8")}, "[w-10] [w-9 w-8]"},
	} {
		now, later := (&choice{chosen: c.chosen}).turn()
		if got := fmt.Sprint(now, " ", later); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// TestTheChosenAreStopped plays a ReplicaSet: whatever the pods, it stops the chosen ones or choose refuses, and a second controller that
// does not know what the first one did adds nothing.
func TestTheChosenAreStopped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pods []*corev1.Pod
		var names []string
		changes := []func(*corev1.Pod){func(*corev1.Pod) {}, func(*corev1.Pod) {}, unready, pending, marked, deleting, failed}
		for i := range rapid.IntRange(1, 8).Draw(t, "pods") {
			p := pod("ReplicaSet", "web", fmt.Sprint("p", i), rapid.SampledFrom(changes).Draw(t, "change"))
			pods = append(pods, p)
			if rapid.Bool().Draw(t, "stop") {
				names = append(names, p.Name)
			}
		}
		living := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !active(p) })
		replicas := len(living)
		c, err := choose(pods, names, replicas)
		if err != nil || len(c.chosen) == 0 {
			return
		}
		for _, p := range c.unmark {
			p.Annotations = nil
		}
		for _, p := range c.chosen {
			marked(p)
		}
		again, _ := choose(pods, names, replicas-c.fewer)
		if again.fewer != 0 {
			t.Fatalf("%d more are stopped by a controller that begins again", again.fewer)
		}
		slices.SortStableFunc(living, func(a, b *corev1.Pod) int { // what a ReplicaSet does
			if n := rank(a) - rank(b); n != 0 {
				return n
			}
			return cost(a) - cost(b)
		})
		for _, p := range living[:c.fewer] {
			if !slices.Contains(names, p.Name) {
				t.Fatalf("%s is stopped, chosen were %v", p.Name, names)
			}
		}
		if c.fewer != len(c.chosen) {
			t.Fatalf("%d fewer for %d chosen", c.fewer, len(c.chosen))
		}
	})
}

func TestProblemsOfPodsAreFew(t *testing.T) {
	texts := slices.Repeat([]string{"pod a waits"}, 10)
	if err := some(texts); err == nil || !strings.HasSuffix(err.Error(), "; and 7 more") {
		t.Errorf("some = %v", err)
	}
	if err := some(nil); err != nil {
		t.Errorf("some of none = %v", err)
	}
}
