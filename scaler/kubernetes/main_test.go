package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scaler/kubernetes/controlplane"
)

func TestMain(m *testing.M) {
	quiet() // before other clients run
	controlplane.Main(m)
}

var (
	namespaces   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	deployments  = known["deployment"]
	statefulsets = known["statefulset"]
)

// rig is a Deployment or StatefulSet named web in a namespace of its own, whose pods become ready at once.
type rig struct {
	t         *testing.T
	plane     *controlplane.Plane
	namespace string
	resource  schema.GroupVersionResource
	kubelet   *controlplane.Kubelet
	config    *rest.Config
}

var rigs atomic.Int64

func newRig(t *testing.T, resource schema.GroupVersionResource, replicas int) *rig {
	t.Helper()
	r := newBareRig(t, resource, replicas)
	r.kubelet = r.plane.Kubelet(t, r.namespace)
	return r
}

// newBareRig makes one whose pods nobody makes ready.
func newBareRig(t *testing.T, resource schema.GroupVersionResource, replicas int) *rig {
	t.Helper()
	plane := controlplane.Shared(t)
	r := &rig{t: t, plane: plane, namespace: fmt.Sprintf("test-%d", rigs.Add(1)), resource: resource, config: plane.Config}
	r.make(namespaces, "", object("v1", "Namespace", r.namespace, nil))
	kind := map[string]string{"deployments": "Deployment", "statefulsets": "StatefulSet"}[resource.Resource]
	labels := map[string]any{"app": "web"}
	spec := map[string]any{
		"replicas": int64(replicas), "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{
				"serviceAccountName": "default", "containers": []any{map[string]any{"name": "web", "image": "web"}},
			},
		},
	}
	if kind == "StatefulSet" {
		spec["serviceName"] = "web"
	}
	r.make(resource, r.namespace, object("apps/v1", kind, "web", map[string]any{"spec": spec}))
	return r
}

func object(version, kind, name string, more map[string]any) *unstructured.Unstructured {
	o := map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name}}
	for k, v := range more {
		o[k] = v
	}
	return &unstructured.Unstructured{Object: o}
}

func (r *rig) make(resource schema.GroupVersionResource, namespace string, o *unstructured.Unstructured) {
	r.t.Helper()
	if _, err := r.plane.Client.Resource(resource).Namespace(namespace).Create(r.t.Context(), o, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) options() Options {
	return Options{
		Config: r.config, Namespace: r.namespace, Resource: r.resource, Name: "web", Port: 8080, ProbePort: 8700, Nodes: true,
	}
}

// driver makes a driver that connects as the rig's user.
func (r *rig) driver() *Driver {
	r.t.Helper()
	d, err := New(r.options())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = d.Close() })
	return d
}

// until waits for a condition, and fails if it does not come true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("still not so: %s", what)
}

// ready waits until the driver lists n members, all ready, and returns their ids.
func ready(t *testing.T, d *Driver, n int) (ids []string) {
	t.Helper()
	var last []quell.Member
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%d members were wanted; the last ones were %+v", n, last)
		}
	})
	until(t, fmt.Sprintf("%d members are ready", n), func() bool {
		members, err := d.Members(t.Context())
		last = members
		return err == nil && len(members) == n &&
			!slices.ContainsFunc(members, func(m quell.Member) bool { return m.State != quell.Ready })
	})
	return quell.IDs(last)
}

// replicas is the number that the platform is to run.
func (r *rig) replicas() int {
	r.t.Helper()
	o, err := r.plane.Client.Resource(r.resource).Namespace(r.namespace).Get(r.t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	return int(n)
}

// patch changes the target as a person does with kubectl.
func (r *rig) patch(text string, sub ...string) {
	r.t.Helper()
	_, err := r.plane.Client.Resource(r.resource).Namespace(r.namespace).Patch(r.t.Context(), "web", types.MergePatchType, []byte(text),
		metav1.PatchOptions{FieldManager: "kubectl"}, sub...)
	if err != nil {
		r.t.Fatal(err)
	}
}

var errKilled = errors.New("the controller was killed")

// killer is a connection whose user is killed at one of its writes: before it is sent, or after it was carried out.
type killer struct {
	next   http.RoundTripper
	at     int // 1 is the first write
	after  bool
	mu     sync.Mutex
	writes int // that were tried, or carried out
}

// dead counts a write, and returns whether the user is killed now or was before.
func (k *killer) dead(counts bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if counts {
		k.writes++
	}
	return k.writes >= k.at
}

func (k *killer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return k.next.RoundTrip(r)
	}
	if k.dead(!k.after) {
		return nil, errKilled
	}
	answer, err := k.next.RoundTrip(r)
	if err == nil && k.after && k.dead(answer.StatusCode < http.StatusMultipleChoices) {
		_ = answer.Body.Close()
		return nil, errKilled
	}
	return answer, err
}

// killedAt is the rig's connection with a killer.
func (r *rig) killedAt(at int, after bool) *rest.Config {
	config := rest.CopyConfig(r.plane.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &killer{next: next, at: at, after: after} })
	return config
}

// cable is a connection that can be cut.
type cable struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("the cable is cut")}
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}
