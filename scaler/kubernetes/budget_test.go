package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// counter is an API server, a ReplicaSet and a disruption budget as far as Stop uses them. The budget is counted at once, and asking
// whether a pod may be evicted does not lower what it allows.
type counter struct {
	mu       sync.Mutex
	pods     []*corev1.Pod
	replicas int
	needs    int           // how many pods the budget wants
	changed  chan struct{} // closed at a change of a pod
	scaling  func()        // called before the number of replicas is changed
	reads    atomic.Int64  // of the number of replicas
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const objects, pods = "/apis/apps/v1/namespaces/shop/deployments", "/api/v1/namespaces/shop/pods"
	if r.Method == http.MethodGet && r.URL.Path == objects+"/web/scale" {
		c.reads.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name, sub, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, pods+"/"), "/")
	switch watch := r.URL.Query().Get("watch") != ""; {
	case r.URL.Query().Get("sendInitialEvents") != "":
		http.Error(w, "only lists and watches", http.StatusBadRequest)
	case watch && r.URL.Path == pods:
		c.watch(w, r)
	case watch:
		begin(w)
		c.wait(r, nil)
	case r.URL.Path == objects+"/web/scale":
		c.scale(w, r)
	case r.URL.Path == objects:
		reply(w, http.StatusOK, list("apps/v1", "DeploymentList", object("apps/v1", "Deployment", "web", map[string]any{
			"metadata": map[string]any{"name": "web", "namespace": "shop", "uid": "web", "resourceVersion": "1"},
		}).Object))
	case r.URL.Path == pods:
		reply(w, http.StatusOK, list("v1", "PodList", c.pods...))
	case sub == "eviction":
		c.ask(w)
	case strings.HasPrefix(r.URL.Path, pods+"/"):
		c.annotate(w, r, name)
	default:
		reply(w, http.StatusOK, list[string]("autoscaling/v1", "HorizontalPodAutoscalerList"))
	}
}

func list[T any](version, kind string, items ...T) map[string]any {
	return map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"resourceVersion": "1"},
		"items": append([]T{}, items...)}
}

func begin(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
}

func reply(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// wait waits for a change, or the end of a request, without the lock.
func (c *counter) wait(r *http.Request, changed chan struct{}) bool {
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-changed:
		return true
	case <-r.Context().Done():
		return false
	}
}

// watch tells of all pods at each change.
func (c *counter) watch(w http.ResponseWriter, r *http.Request) {
	begin(w)
	for {
		for _, p := range c.pods {
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": p})
		}
		w.(http.Flusher).Flush()
		if !c.wait(r, c.changed) {
			return
		}
	}
}

func (c *counter) change() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// running are the pods that are not being stopped.
func (c *counter) running() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(c.pods), func(p *corev1.Pod) bool { return !active(p) })
}

func (c *counter) ask(w http.ResponseWriter) {
	if n := len(c.running()); n <= c.needs {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "DisruptionBudget",
			Message: fmt.Sprintf("The disruption budget web needs %d healthy pods and has %d currently", c.needs, n)}}
		reply(w, http.StatusTooManyRequests, err.Status())
		return
	}
	reply(w, http.StatusCreated, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}

func (c *counter) annotate(w http.ResponseWriter, r *http.Request, name string) {
	var patch struct{ Metadata metav1.ObjectMeta }
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &patch)
	i := slices.IndexFunc(c.pods, func(p *corev1.Pod) bool { return p.Name == name })
	c.pods[i].Annotations = maps.Clone(patch.Metadata.Annotations)
	c.change()
	reply(w, http.StatusOK, c.pods[i])
}

// scale stops the pods with the lowest cost if the number is reduced.
func (c *counter) scale(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		if c.scaling != nil {
			c.scaling()
		}
		var asked struct{ Spec struct{ Replicas int } }
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &asked)
		c.replicas = asked.Spec.Replicas
		left := c.running()
		slices.SortStableFunc(left, func(a, b *corev1.Pod) int { return cost(a) - cost(b) })
		for _, p := range left[:max(0, len(left)-c.replicas)] {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		c.change()
	}
	reply(w, http.StatusOK, map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale",
		"metadata": map[string]any{"name": "web", "namespace": "shop", "resourceVersion": "1"},
		"spec":     map[string]any{"replicas": c.replicas}, "status": map[string]any{"selector": "app=web"}})
}

// newCounter starts one with four pods, and a driver of it that knows them.
func newCounter(t *testing.T, needs int) (*counter, *Driver) {
	t.Helper()
	c := &counter{replicas: 4, needs: needs, changed: make(chan struct{})}
	for i := range 4 {
		c.pods = append(c.pods, pod("ReplicaSet", "web", fmt.Sprint("web-", i), func(p *corev1.Pod) {
			p.Namespace, p.ResourceVersion, p.TypeMeta = "shop", "1", metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		}))
	}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	d, err := New(Options{Config: &rest.Config{Host: server.URL}, Namespace: "shop", Resource: deployments, Name: "web", Port: 8080})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	d.settle = 0
	ready(t, d, 4)
	until(t, "all is watched", func() bool { return d.stale() == nil })
	return c, d
}

// A call of Stop that comes while another one is under way waits for its end, and then asks the budget itself: together they stop no more
// than it allows.
func TestTwoCallsOfStop(t *testing.T) {
	c, d := newCounter(t, 3)
	second := make(chan error, 1)
	c.scaling = func() {
		before := c.reads.Load()
		go func() { second <- d.Stop(context.Background(), []string{"web-1"}) }()
		for range 10 {
			if time.Sleep(10 * time.Millisecond); c.reads.Load() != before {
				t.Error("the second call began before the first one had ended")
				break
			}
		}
	}
	if err := d.Stop(t.Context(), []string{"web-0"}); err != nil {
		t.Error(err)
	}
	says(t, "the second Stop", <-second, "disruption budget web needs 3 healthy pods and has 3")
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := c.running(); len(left) != 3 || c.replicas != 3 || slices.Contains(left, c.pods[0]) {
		t.Errorf("%d replicas, and these run: %v", c.replicas, left)
	}
}

// The next call waits until the platform has counted what the budget allows after the last one.
func TestTheNextStopWaitsForTheCount(t *testing.T) {
	c, d := newCounter(t, 1)
	if err := d.Stop(t.Context(), []string{"web-0"}); err != nil {
		t.Fatal(err)
	}
	d.settle = time.Hour
	before := c.reads.Load()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := d.Stop(ctx, []string{"web-1"}); err == nil || c.reads.Load() != before {
		t.Errorf("%v, %d requests", err, c.reads.Load()-before)
	}
}

// TestSeveralAtOnceAndABudget: of pods that are stopped together, so many are stopped as the budget allows, and the budget is named.
func TestSeveralAtOnceAndABudget(t *testing.T) {
	for needs, left := range map[int]int{3: 3, 2: 2, 1: 1} {
		c, d := newCounter(t, needs)
		err := d.Stop(t.Context(), []string{"web-0", "web-1", "web-2"})
		if left == 1 {
			if err != nil {
				t.Errorf("with a budget of %d: %v", needs, err)
			}
		} else {
			says(t, "Stop", err, fmt.Sprintf("disruption budget web needs %d healthy pods and has %d", needs, needs))
		}
		c.mu.Lock()
		if n := len(c.running()); n != left || c.replicas != left {
			t.Errorf("with a budget of %d: %d pods run, %d replicas", needs, n, c.replicas)
		}
		c.mu.Unlock()
	}
}
