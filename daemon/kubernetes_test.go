package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/scaler/kubernetes"
	"github.com/quellhq/quell/scaler/kubernetes/controlplane"
)

// cluster is a Deployment named web on a real API server. Its pods are addresses of this machine, where one server answers for all.
type cluster struct {
	*rig
	plane     *controlplane.Plane
	namespace string
	port      int
}

func newCluster(t *testing.T, namespace string, replicas int) *cluster {
	t.Helper()
	c := &cluster{plane: controlplane.Shared(t), namespace: namespace}
	c.rig = newRig(t, "")
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	c.port = listener.Addr().(*net.TCPAddr).Port
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	c.create("namespaces", "", "", "Namespace", namespace, nil)
	c.create("serviceaccounts", "", namespace, "ServiceAccount", "default", nil)
	labels := map[string]any{"app": "web"}
	c.create("deployments", "apps", namespace, "Deployment", "web", map[string]any{
		"replicas": int64(replicas), "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
			"serviceAccountName": "default", "containers": []any{map[string]any{"name": "web", "image": "web", "resources": map[string]any{
				"requests": map[string]any{"cpu": "100m"}, "limits": map[string]any{"cpu": "2"},
			}}},
		}},
	})
	c.plane.Kubelet(t, namespace)
	return c
}

func (c *cluster) create(resource, group, namespace, kind, name string, spec map[string]any, sub ...string) *unstructured.Unstructured {
	c.t.Helper()
	version := strings.TrimPrefix(group+"/v1", "/")
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name}}}
	if kind == "TokenRequest" {
		o.SetAPIVersion("authentication.k8s.io/v1")
	}
	if spec != nil {
		o.Object["spec"] = spec
	}
	of := c.plane.Client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}).Namespace(namespace)
	made, err := of.Create(c.t.Context(), o, metav1.CreateOptions{}, sub...)
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

// group writes the configuration for a group of this size.
func (c *cluster) group(least, most int) {
	c.t.Helper()
	c.write(fmt.Sprintf(`policy: {name: static}
mode: act
group: {min: %d, max: %d, startup: 30s}
probe: {capacity: 40Mbps}
scaler: {kind: kubernetes, target: deployment/web, namespace: %s, port: %d, kubeconfig: %q, nodes: false, join: true, node_agents: %s/agent}
`, least, most, c.namespace, c.port, c.plane.Kubeconfig(), c.namespace))
}

// pods are the pods that are not being deleted, and the number that the platform is to run.
func (c *cluster) pods() (pods map[string]*unstructured.Unstructured, wanted int64) {
	c.t.Helper()
	list, err := c.plane.Client.Resource(controlplane.Pods).Namespace(c.namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	pods = map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		if list.Items[i].GetDeletionTimestamp() == nil {
			pods[list.Items[i].GetName()] = &list.Items[i]
		}
	}
	deployment, err := c.plane.Client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).
		Namespace(c.namespace).Get(c.t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	wanted, _, _ = unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	return pods, wanted
}

// serving waits until n pods are there, and ready and with a share for the controller, and returns their names.
func (c *cluster) serving(n int) []string {
	c.t.Helper()
	s := c.awaitStatus(fmt.Sprintf("%d pods to serve", n), func(s controller.Status) bool {
		pods, wanted := c.pods()
		without := func(in controller.InstanceStatus) bool {
			return in.State != quell.Ready || in.Weight == nil || *in.Weight == 0
		}
		return len(pods)-others(pods) == n && wanted == int64(n) && len(s.Instances) == n && !slices.ContainsFunc(s.Instances, without)
	})
	var names []string
	for _, in := range s.Instances {
		names = append(names, in.ID)
	}
	return names
}

// others counts the pods that are not of the Deployment.
func others(pods map[string]*unstructured.Unstructured) (n int) {
	for name := range pods {
		if !strings.HasPrefix(name, "web-") {
			n++
		}
	}
	return n
}

// killed waits for a step of a change, kills the controller with it, and starts it again.
func (c *cluster) killed(p *proc, what string, is func(pods map[string]*unstructured.Unstructured, wanted int64) bool) *proc {
	c.t.Helper()
	c.await(what, func() (bool, any) {
		pods, wanted := c.pods()
		return is(pods, wanted), wanted
	})
	p.kill(c.t)
	return c.start("controller")
}

// TestControllerIsKilledInACluster kills the process at each step by which a group of pods grows, shrinks, and replaces one: none is
// started or stopped too many. An agent joins with the token of its pod.
func TestControllerIsKilledInACluster(t *testing.T) {
	c := newCluster(t, "killed", 2)
	c.group(2, 2)
	p := c.start("controller")
	c.start("balancer")
	first := c.serving(2)
	c.joins(first[0])
	c.reportsForANode(first[1])

	c.group(4, 4) // grow
	p.kill(t)
	ordered := func(_ map[string]*unstructured.Unstructured, wanted int64) bool { return wanted > 2 }
	p = c.killed(c.start("controller"), "more pods to be ordered", ordered)
	all := c.serving(4)
	for _, id := range first {
		if !slices.Contains(all, id) {
			t.Errorf("%s was stopped while the group grew: %v", id, all)
		}
	}

	c.group(2, 2) // shrink
	p.kill(t)
	p = c.start("controller")
	chosen := map[string]bool{}
	p = c.killed(p, "pods to be chosen", func(pods map[string]*unstructured.Unstructured, _ int64) bool {
		for name, pod := range pods {
			if pod.GetAnnotations()[corev1.PodDeletionCost] != "" {
				chosen[name] = true
			}
		}
		return len(chosen) > 0
	})
	left := c.serving(2)
	for id := range chosen {
		if slices.Contains(left, id) {
			t.Errorf("%s was chosen, and others were stopped: %v", id, left)
		}
	}

	old, stays := left[0], left[1] // replace
	if out, status := c.quell("replace", old, "--config", c.config); status != 0 {
		t.Fatal(out)
	}
	p = c.killed(p, "the new pod to be ordered", ordered)
	c.killed(p, "the old pod to be chosen", func(pods map[string]*unstructured.Unstructured, _ int64) bool {
		pod := pods[old]
		return pod == nil || pod.GetAnnotations()[corev1.PodDeletionCost] != ""
	})
	c.await("the old pod to be gone", func() (bool, any) { pods, n := c.pods(); return pods[old] == nil, n })
	if now := c.serving(2); slices.Contains(now, old) || !slices.Contains(now, stays) {
		t.Errorf("%s was to be replaced, %s to stay; there are %v", old, stays, now)
	}
}

// reportsForANode starts the agent of a made-up node, which reports for a pod there and names its neighbour.
func (c *cluster) reportsForANode(pod string) {
	c.t.Helper()
	node := c.namespace + "-node"
	c.create("nodes", "", "", "Node", node, nil)
	c.create("serviceaccounts", "", c.namespace, "ServiceAccount", "agent", nil)
	for _, name := range []string{"agent", "noisy"} {
		c.create("pods", "", c.namespace, "Pod", name, map[string]any{
			"serviceAccountName": "agent", "containers": []any{map[string]any{"name": name, "image": name}},
		})
	}
	uids := map[string]string{}
	c.await("the node's pods to run", func() (bool, any) {
		pods, _ := c.pods()
		for name, o := range pods {
			phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			if phase == "Running" {
				uids[name] = string(o.GetUID())
			}
		}
		return uids["agent"] != "" && uids["noisy"] != "" && uids[pod] != "", uids
	})
	c.projectToken("node-token", "agent", "agent", uids["agent"])
	root := filepath.Join(c.dir, "node")
	machine := newFakeNode(c.t, root, map[string]use{uids[pod]: {run: 0.25}, uids["noisy"]: {run: 1.5}})
	defer machine()
	config := c.machine("node", "")
	text := strings.Replace(c.text(config), "join: web.join", "proof: kubernetes, proof_token: node-token", 1)
	text = strings.Replace(text, "agent: {instance: }", fmt.Sprintf("agent: {root: %q}", root), 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	p := c.launchAgent(config, "--node", node)
	c.await("the neighbour to be named", func() (bool, any) {
		out, _ := c.quell("journal", "--snapshots", "--json", "--config", c.config)
		return has(out, `"top":{"cpu":{"name":"`+c.namespace+`/noisy"`), p.said()
	})
	p.kill(c.t)
}

// use is how many processors a pod uses, and for how many it waits.
type use struct{ run, wait float64 }

// newFakeNode writes proc and sys of a made-up machine with 2 processors, and lets pods use them until it is stopped.
func newFakeNode(t *testing.T, root string, used map[string]use) (stop func()) {
	t.Helper()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Error(err)
		}
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600) // not emptied first: whoever reads meanwhile sees a whole text
		if err == nil {
			_, err = file.WriteString(text) // which never becomes shorter
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	write("proc/self/mountinfo", "31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
	start := time.Now()
	look := func() {
		seconds := 1000 + time.Since(start).Seconds()
		write("proc/stat", fmt.Sprintf("cpu %d 0 0 %d 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n", int(180*seconds),
			int(20*seconds)))
		for uid, one := range used {
			folder := "sys/fs/cgroup/kubepods/burstable/pod" + uid
			write(folder+"/cpu.stat", fmt.Sprintf("usage_usec %d\n", int(1e6*one.run*seconds)))
			write(folder+"/cpu.pressure", fmt.Sprintf("some avg10=0 avg60=0 avg300=0 total=%d\n", int(1e6*one.wait*seconds)))
		}
	}
	look()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			look()
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}

// TestLimitsOfANode runs a policy for the pods on a node. Its caps are limits of the pods' containers. The next agent puts back what a
// killed one left, and each does when it ends.
func TestLimitsOfANode(t *testing.T) {
	c := newCluster(t, "limits", 2)
	node := c.namespace + "-node"
	room := map[string]any{"cpu": "16", "memory": "16Gi", "pods": "100"}
	c.group(2, 2)
	c.create("nodes", "", "", "Node", node, nil)
	nodes := c.plane.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	if err := controlplane.SetStatus(t.Context(), nodes, node, map[string]any{"allocatable": room, "capacity": room}); err != nil {
		t.Fatal(err)
	}
	var names []string
	used := map[string]use{}
	c.await("the pods to run", func() (bool, any) {
		pods, _ := c.pods()
		names = slices.Sorted(maps.Keys(pods))
		running := 0
		for _, o := range pods {
			if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase == "Running" {
				running++
			}
		}
		return running == 2, names
	})
	pods, _ := c.pods()
	used[string(pods[names[0]].GetUID())] = use{run: 1.5}
	used[string(pods[names[1]].GetUID())] = use{run: 0.4, wait: 0.5}
	root := filepath.Join(c.dir, "node")
	machine := newFakeNode(t, root, used)
	defer machine()
	config := c.machine("node", "")
	text := strings.Replace(c.text(config), "agent: {instance: }",
		fmt.Sprintf("agent: {root: %q, policy: {name: acs, by: caps, sampling: 100ms}}", root), 1)
	text = strings.Replace(text, "join: true", "join: true, resize: true", 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	limit := func() string {
		pods, _ := c.pods()
		containers, _, _ := unstructured.NestedSlice(pods[names[0]].Object, "spec", "containers")
		cpu, _, _ := unstructured.NestedString(containers[0].(map[string]any), "resources", "limits", "cpu")
		return cpu
	}
	p := c.launchAgent(config, "--node", node)
	capped := func() (bool, any) { return limit() != "2", p.said() }
	c.await("the pod that takes most to be limited", capped)
	c.await("the agent's status", func() (bool, any) {
		out, status := c.quell("status", "--local", "--config", config)
		return status == 0 && has(out, "of 2 processors"), out
	})
	p.kill(t)
	p = c.launchAgent(config, "--node", node)
	c.await("the limit of the killed agent to be removed", func() (bool, any) {
		return has(p.said(), "a limit that an earlier agent left was removed"), p.said()
	})
	c.await("the pod to be limited again", capped)
	p.stop(t)
	if now := limit(); now != "2" {
		t.Errorf("after the agent's end the limit is %s\n%s", now, p.said())
	}
}

// projectToken writes the token of a service account's pod, as a kubelet does.
func (c *cluster) projectToken(file, account, pod, uid string) {
	c.t.Helper()
	token := c.create("serviceaccounts", "", c.namespace, "TokenRequest", account, map[string]any{
		"audiences":      []any{kubernetes.Audience},
		"boundObjectRef": map[string]any{"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid},
	}, "token")
	text, _, _ := unstructured.NestedString(token.Object, "status", "token")
	if err := os.WriteFile(filepath.Join(c.dir, file), []byte(text+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// joins starts an agent with the token of a pod, and one that claims to be another pod.
func (c *cluster) joins(pod string) {
	c.t.Helper()
	pods, _ := c.pods()
	c.projectToken("token", "default", pod, string(pods[pod].GetUID()))
	machine := func(name, instance string) *proc {
		config := c.machine(name, instance)
		own := strings.Replace(c.text(config), "join: web.join", "proof: kubernetes, proof_token: token", 1)
		if err := os.WriteFile(config, []byte(own), 0o600); err != nil {
			c.t.Fatal(err)
		}
		return c.launchAgent(config)
	}
	machine("pod", pod)
	c.awaitReports(pod)
	for other := range pods {
		if other != pod {
			p := machine("other", other)
			c.await("a pod's token to be refused for another", func() (bool, any) {
				return has(p.said(), "its token is that of pod "+pod), p.said()
			})
		}
	}
	c.await("the journal", func() (bool, any) {
		out, _ := c.quell("journal", "--config", c.config)
		return has(out, "joined: "+pod+" (with a proof of kubernetes", "refused to join: a proof of kubernetes"), out
	})
}
