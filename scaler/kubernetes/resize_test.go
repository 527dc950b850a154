package kubernetes

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/limit/pods"
	"github.com/quellhq/quell/scaler/kubernetes/controlplane"
)

// cpu is the resources of a container; "": it has none of these.
func cpu(request, limit string) map[string]any {
	r := map[string]any{"requests": map[string]any{"memory": "16Mi"}, "limits": map[string]any{"memory": "32Mi"}}
	for kind, value := range map[string]string{"requests": request, "limits": limit} {
		if value != "" {
			r[kind].(map[string]any)["cpu"] = value
		}
	}
	return r
}

func container(name string, resources map[string]any) map[string]any {
	return map[string]any{"name": name, "image": "web", "resources": resources}
}

// run makes a pod with these containers, which runs at once.
func (r *rig) run(name string, containers ...map[string]any) {
	r.t.Helper()
	list := make([]any, len(containers))
	for i, c := range containers {
		list[i] = c
	}
	r.make(controlplane.Pods, r.namespace, object("v1", "Pod", name, map[string]any{
		"spec": map[string]any{"nodeName": r.namespace + "-node", "containers": list},
	}))
	until(r.t, name+" runs", func() bool { return r.pod(name).Status.Phase == corev1.PodRunning })
}

func (r *rig) pod(name string) (pod corev1.Pod) {
	r.t.Helper()
	o, err := r.plane.Client.Resource(controlplane.Pods).Namespace(r.namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return pod
}

// limits are the processor limits of a pod's containers, in thousandths.
func (r *rig) limits(name string) (list []int64) {
	r.t.Helper()
	for _, c := range r.pod(name).Spec.Containers {
		list = append(list, c.Resources.Limits.Cpu().MilliValue())
	}
	return list
}

// edit sets the limit of a container as a person does.
func (r *rig) edit(pod, container, limit string) error {
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"resources":{"limits":{"cpu":%s}}}]}}`, container, limit)
	_, err := r.plane.Client.Resource(controlplane.Pods).Namespace(r.namespace).Patch(r.t.Context(), pod, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{FieldManager: "kubectl"}, "resize")
	return err
}

// machine makes the rig's node, which has room for larger limits.
func (r *rig) machine() {
	room := map[string]any{"cpu": "16", "memory": "16Gi", "pods": "100"}
	status := map[string]any{"allocatable": room, "capacity": room}
	r.make(nodes, "", object("v1", "Node", r.namespace+"-node", map[string]any{"status": status}))
}

// limitable makes the rig's node and a pod on it whose limit, one processor, can be changed.
func (r *rig) limitable(name string) {
	r.t.Helper()
	r.machine()
	r.run(name, container("web", cpu("250m", "1")))
}

// node watches the rig's node with the rig's rights.
func (r *rig) node() *Node {
	r.t.Helper()
	s := &Settings{Target: "deployment/web", Namespace: r.namespace, Kubeconfig: r.kubeconfig(), Resize: true}
	n, err := s.WatchNode(r.namespace + "-node")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(n.Close)
	until(r.t, "the node's pods are known", func() bool { return n.pods.problem() == nil })
	return n
}

// resizer limits the pods of a rig's node. Its clock goes on by the pace of changes at each look.
type resizer struct {
	*rig
	node    *Node
	limiter *pods.Limiter
	clock   time.Time
}

func newResizer(t *testing.T) *resizer {
	t.Helper()
	r := &resizer{rig: newRig(t, deployments, 0), clock: time.Unix(1000, 0)}
	r.machine()
	r.node = r.rig.node()
	r.begin()
	return r
}

func (r *resizer) begin() {
	r.limiter = pods.New(r.node, r.t.TempDir(), func() time.Time { return r.clock })
	r.t.Cleanup(func() { _ = r.limiter.Close() })
}

// apply puts a limit in force, in processors; 0: none. It returns why it is not.
func (r *resizer) apply(pod string, processors float64) error {
	r.t.Helper()
	until(r.t, "the watch shows "+pod, func() bool { _, err := r.node.Pod(pod); return err == nil })
	r.clock = r.clock.Add(10 * time.Second)
	var list []quell.Limit
	if processors > 0 {
		list = []quell.Limit{{Instance: pod, Resource: quell.CPU, Value: processors, Unit: "processors"}}
	}
	return r.limiter.Apply(list)[pod]
}

func (r *rig) want(what, pod string, limits ...int64) {
	r.t.Helper()
	if got := r.limits(pod); fmt.Sprint(got) != fmt.Sprint(limits) {
		r.t.Errorf("%s: limits of %s are %v, want %v", what, pod, got, limits)
	}
}

// TestResize limits a pod in place, and puts back what was there.
func TestResize(t *testing.T) {
	t.Parallel()
	r := newResizer(t)
	r.run("web-1", container("web", cpu("250m", "1")), container("side", cpu("0.1", "500m")))
	before := r.pod("web-1")
	if err := r.apply("web-1", 0.925); err != nil { // half of what is beyond the requests
		t.Fatal(err)
	}
	r.want("a cap", "web-1", 625, 300)
	after := r.pod("web-1")
	if after.Status.QOSClass != before.Status.QOSClass || after.UID != before.UID ||
		after.Spec.Containers[0].Resources.Requests.Cpu().Cmp(*before.Spec.Containers[0].Resources.Requests.Cpu()) != 0 {
		t.Errorf("more than the limits has changed: %+v", after.Spec)
	}
	managers := fmt.Sprint(after.ManagedFields)
	if !strings.Contains(managers, agentManager) || !r.node.Ours(r.namespace+"/web-1/web") {
		t.Errorf("the fields' manager is not %s: %s", agentManager, managers)
	}
	says(t, "a cap below the requests", r.apply("web-1", 0.1), "limited to 0.35 processors, which it requests, not to 0.10")
	r.want("a cap below the requests", "web-1", 250, 100)
	if err := r.apply("web-1", 4); err != nil {
		t.Error(err)
	}
	r.want("a cap beyond the pod's own limits", "web-1", 1000, 500)
	if err := r.apply("web-1", 0.5); err != nil {
		t.Fatal(err)
	}
	if err := r.limiter.Close(); err != nil {
		t.Error(err)
	}
	r.want("the end", "web-1", 1000, 500)
	if r.pod("web-1").Status.QOSClass != corev1.PodQOSBurstable {
		t.Error("its class has changed")
	}
}

// TestResizeBesideOthers changes limits by hand, too: they stand, and the pod's other container gets back what it had.
func TestResizeBesideOthers(t *testing.T) {
	t.Parallel()
	r := newResizer(t)
	r.run("web-1", container("web", cpu("250m", "1")), container("side", cpu("0.1", "500m")))
	if err := r.apply("web-1", 0.925); err != nil {
		t.Fatal(err)
	}
	if err := r.edit("web-1", "web", `"2"`); err != nil {
		t.Fatal(err)
	}
	until(t, "the watch shows the edit", func() bool {
		millis, _, err := r.node.Limit(r.namespace + "/web-1/web")
		return err == nil && millis == 2000
	})
	says(t, "after an edit", r.apply("web-1", 0.8), "left alone until it is replaced", `somebody else changed it from "625m" to "2000m"`)
	says(t, "later", r.apply("web-1", 0.7), "left alone until it is replaced")
	r.want("after an edit", "web-1", 2000, 500)
	if r.node.Ours(r.namespace + "/web-1/web") {
		t.Error("an edit counts as Quell's own")
	}
	// An edit that no watch has shown yet is not overwritten either.
	r.run("web-2", container("web", cpu("250m", "1")))
	until(t, "the watch shows it", func() bool { _, err := r.node.Pod("web-2"); return err == nil })
	shown := r.node.pods.informer.GetStore()
	old, _, _ := shown.GetByKey(r.namespace + "/web-2")
	if err := r.edit("web-2", "web", `"1500m"`); err != nil {
		t.Fatal(err)
	}
	pod := old.(*corev1.Pod).DeepCopy()
	pod.ResourceVersion = "999999999999"
	r.node.written[r.namespace+"/web-2"] = pod
	says(t, "an edit that is not seen yet", r.node.SetLimit(r.namespace+"/web-2/web", 1000, 300), "resizing the pod")
	r.want("an edit that is not seen yet", "web-2", 1500)
}

// TestResizeIsRefused lists pods whose limits stay.
func TestResizeIsRefused(t *testing.T) {
	t.Parallel()
	r := newResizer(t)
	restarting := container("web", cpu("250m", "1"))
	restarting["resizePolicy"] = []any{map[string]any{"resourceName": "cpu", "restartPolicy": "RestartContainer"}}
	equal := cpu("1", "1")
	equal["requests"].(map[string]any)["memory"] = "32Mi"
	for name, tc := range map[string]struct {
		containers []map[string]any
		why        string
	}{
		"guaranteed": {[]map[string]any{container("web", equal)}, "Guaranteed"},
		"unlimited": {[]map[string]any{container("web", cpu("1", "2")), container("side", cpu("", ""))},
			"container side has no limit of processors"},
		"restarting": {[]map[string]any{restarting}, "would be restarted: its resizePolicy says RestartContainer"},
		"full":       {[]map[string]any{container("web", cpu("1", "1"))}, "request as many processors as their limits are"},
	} {
		r.run(name, tc.containers...)
		before := r.limits(name)
		says(t, name, r.apply(name, 0.5), tc.why)
		r.want(name, name, before...)
	}
	r.limiter.Apply(nil)
	failed := r.limiter.Apply([]quell.Limit{{Instance: "guaranteed", Resource: quell.CPU, Value: 2, Unit: quell.WeightUnit}})
	says(t, "a weight", failed["guaranteed"], "no cpu weight", "by: caps")
	// This is why pods without limits are refused: the API takes no limit away again. And no limit is below what is requested.
	if err := r.edit("unlimited", "side", `"1"`); err != nil {
		t.Fatal(err)
	}
	says(t, "taking a limit away", r.edit("unlimited", "side", "null"), "cannot be removed")
	says(t, "a limit below the request", r.edit("unlimited", "web", `"500m"`), "must be less than or equal to")
}

// TestResizeWaits plays a kubelet that does not carry out a change.
func TestResizeWaits(t *testing.T) {
	t.Parallel()
	r := newResizer(t)
	r.run("web-1", container("web", cpu("250m", "1")))
	condition := func(kind corev1.PodConditionType, reason, message string) {
		t.Helper()
		one := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}
		r.status("web-1", corev1.PodStatus{Conditions: []corev1.PodCondition{one}})
		until(t, "the watch shows "+reason, func() bool {
			pod, err := r.node.Pod("web-1")
			return err == nil && strings.Contains(pod.Pending, reason) && (pod.Changing || kind == corev1.PodResizePending)
		})
	}
	if err := r.apply("web-1", 0.5); err != nil {
		t.Fatal(err)
	}
	condition(corev1.PodResizeInProgress, "", "")
	if err := r.apply("web-1", 0.5); err != nil {
		t.Errorf("in progress: %v", err)
	}
	r.clock = r.clock.Add(time.Minute)
	says(t, "in progress for long", r.apply("web-1", 0.5), "has not carried out the limit for 1m")
	for _, reason := range []string{corev1.PodReasonDeferred, corev1.PodReasonInfeasible} {
		condition(corev1.PodResizePending, reason, "not now")
		says(t, reason, r.apply("web-1", 0.5), "its node has not carried out the limit: "+reason+": not now")
	}
	condition(corev1.PodResizeInProgress, corev1.PodReasonError, "the runtime says no")
	says(t, "an error", r.apply("web-1", 0.5), "Error: the runtime says no")
}

// The path of a container's limit in the fields that a manager has.
func TestOwns(t *testing.T) {
	fields, err := json.Marshal(map[string]any{"f:spec": map[string]any{"f:containers": map[string]any{`k:{"name":"web"}`: map[string]any{}}}})
	if err != nil {
		t.Fatal(err)
	}
	if !owns(fields, "f:spec", "f:containers", `k:{"name":"web"}`) || owns(fields, "f:spec", "f:containers", `k:{"name":"we"}`) ||
		owns(nil, "f:spec") || owns([]byte("[]"), "f:spec") {
		t.Error("owns is wrong")
	}
}
