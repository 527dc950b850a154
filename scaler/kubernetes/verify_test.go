package kubernetes

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/scaler/kubernetes/controlplane"
)

// proved checks that a proof is accepted, or refused with these words.
func proved(t *testing.T, what string, err error, refusal string) {
	t.Helper()
	var unproved *scaler.Unproved
	switch {
	case refusal == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case refusal != "" && (!errors.As(err, &unproved) || !strings.Contains(err.Error(), refusal)):
		t.Errorf("%s: %v, wanted a refusal with %q", what, err, refusal)
	}
}

// token asks the API server for a token of a service account of the rig's namespace; pod "": it is bound to none.
func (r *rig) token(account, audience, pod string) string {
	r.t.Helper()
	spec := map[string]any{"audiences": []any{audience}}
	if pod != "" {
		o, err := r.plane.Client.Resource(controlplane.Pods).Namespace(r.namespace).Get(r.t.Context(), pod, metav1.GetOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		spec["boundObjectRef"] = map[string]any{"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": string(o.GetUID())}
	}
	made, err := r.plane.Client.Resource(accounts).Namespace(r.namespace).Create(r.t.Context(),
		object("authentication.k8s.io/v1", "TokenRequest", account, map[string]any{"spec": spec}), metav1.CreateOptions{}, "token")
	if err != nil {
		r.t.Fatal(err)
	}
	text, _, _ := unstructured.NestedString(made.Object, "status", "token")
	return text
}

// place makes a pod on a node, as a DaemonSet does. It never starts.
func (r *rig) place(name, account, node string) {
	r.t.Helper()
	r.make(controlplane.Pods, r.namespace, object("v1", "Pod", name, map[string]any{"spec": map[string]any{
		"nodeName": node, "serviceAccountName": account, "containers": []any{map[string]any{"name": "agent", "image": "quell"}},
	}}))
}

// TestVerify shows tokens of service accounts, made by a real API server, to the driver.
func TestVerify(t *testing.T) {
	t.Parallel()
	r := newRig(t, deployments, 2)
	for _, name := range []string{"default", "agent", "stranger"} {
		if _, err := r.plane.Client.Resource(accounts).Namespace(r.namespace).Apply(t.Context(), name,
			object("v1", "ServiceAccount", name, nil), metav1.ApplyOptions{FieldManager: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	here, elsewhere := r.namespace+"-node", r.namespace+"-other"
	for _, name := range []string{here, elsewhere} { // the API server says a pod's node only if it knows it
		r.make(nodes, "", object("v1", "Node", name, nil))
	}
	d, err := New(Options{Config: r.config, Namespace: r.namespace, Resource: r.resource, Name: "web", Port: 8080,
		Joins: Joining{On: true, Audience: Audience, NodeAgents: r.namespace + "/agent"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	ids := ready(t, d, 2)
	r.place("agent-here", "agent", here)
	r.place("agent-there", "agent", elsewhere)
	r.place("other", "stranger", here)
	own := r.token("default", Audience, ids[0])
	for _, tc := range []struct{ name, instance, proof, refusal string }{
		{"a pod's own", ids[0], own, ""},
		{"another pod's", ids[1], own, "its token is that of pod " + ids[0]},
		{"an agent's on its node", ids[1], r.token("agent", Audience, "agent-here"), ""},
		{"an agent's on another node", ids[1], r.token("agent", Audience, "agent-there"), "an agent on node " + elsewhere},
		{"a stranger's on its node", ids[1], r.token("stranger", Audience, "other"), "not of pod " + ids[1]},
		{"for another audience", ids[0], r.token("default", "vault", ids[0]), `its token is for ["vault"], not for "quell"`},
		{"bound to no pod", ids[0], r.token("default", Audience, ""), "bound to no pod"},
		{"no instance", "web-x", own, "is no pod of"},
		{"not a token", ids[0], "secret", "no token"},
		{"not claims", ids[0], "a.e30.b", "its token is for []"},
		{"forged", ids[0], own[:strings.LastIndexByte(own, '.')+1] + base64.RawURLEncoding.EncodeToString([]byte("x")), "does not accept"},
	} {
		machine, err := d.Verify(t.Context(), tc.instance, tc.proof, false)
		proved(t, tc.name, err, tc.refusal)
		if err == nil && (machine == "" || machine == tc.instance) {
			t.Errorf("%s: the machine is %q", tc.name, machine)
		}
	}
	// A token ends with its pod.
	err = r.plane.Client.Resource(controlplane.Pods).Namespace(r.namespace).Delete(t.Context(), ids[0], metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the token of a pod that is gone is refused", func() bool {
		var unproved *scaler.Unproved
		_, err := d.Verify(t.Context(), ids[0], own, true)
		return errors.As(err, &unproved)
	})
}

// The API server vouches for users of other kinds, too, and older ones do not say on which node a pod is.
func TestVouches(t *testing.T) {
	web := pod("ReplicaSet", "web", "web-1")
	web.Namespace = "shop"
	user := func(name string, extras ...string) *authenticationv1.UserInfo {
		u := &authenticationv1.UserInfo{Username: name, Extra: map[string]authenticationv1.ExtraValue{}}
		for i, key := range []string{extraPod, extraPodUID, extraNode} {
			if i < len(extras) {
				u.Extra[key] = authenticationv1.ExtraValue{extras[i]}
			}
		}
		return u
	}
	j := Joining{NodeAgents: "quell/agent"}
	for name, tc := range map[string]struct {
		user    *authenticationv1.UserInfo
		refusal string
	}{
		"itself":                   {user("system:serviceaccount:shop:web", "web-1", "web-1"), ""},
		"earlier, of the name":     {user("system:serviceaccount:shop:web", "web-1", "web-0"), "not of pod web-1"},
		"of another namespace":     {user("system:serviceaccount:test:web", "web-1", "web-1"), "not of pod web-1"},
		"a person":                 {user("alice", "web-1", "web-1"), "not of a service account"},
		"a node":                   {user("system:node:n1"), "not of a service account"},
		"the agent of its node":    {user("system:serviceaccount:quell:agent", "agent-1", "uid", "n1"), ""},
		"the agent of another":     {user("system:serviceaccount:quell:agent", "agent-1", "uid", "n2"), "is on node"},
		"an account of that name":  {user("system:serviceaccount:shop:agent", "agent-1", "uid", "n1"), "not of pod web-1"},
		"an agent without its pod": {user("system:serviceaccount:quell:agent"), "bound to no pod"},
	} {
		proved(t, name, j.vouches(tc.user, web), tc.refusal)
	}
	err := j.vouches(user("system:serviceaccount:quell:agent", "agent-1", "uid"), web)
	if err == nil || !strings.Contains(err.Error(), "1.32") {
		t.Errorf("without the node: %v", err)
	}
	if err := j.vouches(user("system:serviceaccount:quell:agent", "agent-1", "uid", ""), &corev1.Pod{}); err == nil {
		t.Error("a pod on no node was vouched for")
	}
	if err := (Joining{}).vouches(user("system:serviceaccount:/", "x", "uid", ""), &corev1.Pod{}); err == nil {
		t.Error("without agents of nodes nobody is one")
	}
	if got := fmt.Sprint((&Settings{}).Proof(), (&Settings{Joins: Joining{On: true}}).Proof()); got != "kubernetes" {
		t.Errorf("kinds of proof %q", got)
	}
}

// TestNode watches a node with the rights of the chart's agents of nodes.
func TestNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, deployments, 2)
	text, problem := rendered(t, "--set", "config.scaler.target=deployment/web,agent.nodes=true,config.scaler.resize=true")
	if problem != "" {
		t.Fatal(problem)
	}
	granted := map[string]bool{}
	var mine []*unstructured.Unstructured
	for _, part := range strings.Split(strings.ReplaceAll(text, "shop", r.namespace), "\n---\n") {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(o.GetName(), "agent") && (o.GetKind() == "ServiceAccount" || strings.Contains(o.GetKind(), "Role")) {
			mine = append(mine, o)
		}
		if strings.Contains(o.GetName(), "agent") && strings.HasSuffix(o.GetKind(), "Role") {
			maps.Copy(granted, rightsOf(o))
		}
	}
	r.config = r.applyAs(mine, "quell-agent")
	r.place("noisy", "stranger", r.namespace+"-node")
	ready(t, r.admin(), 2)
	s := &Settings{Target: "deployment/web", Namespace: r.namespace, Kubeconfig: r.kubeconfig(), Resize: true}
	s.Joins.NodeAgents = r.namespace + "/quell-agent"
	n, err := s.WatchNode(r.namespace + "-node")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	until(t, "the node's pods are known", func() bool {
		list, err := n.Pods(t.Context())
		members := 0
		for _, p := range list {
			if p.Member != strings.HasPrefix(p.Name, "web-") || p.Namespace != r.namespace || p.UID == "" {
				t.Fatalf("%+v", p)
			}
			if p.Member {
				members++
			}
		}
		return err == nil && members == 2 && len(list) == 3
	})
	r.limitable("limited")
	until(t, "the watch shows it", func() bool { _, err := n.Pod("limited"); return err == nil })
	if err := n.SetLimit(r.namespace+"/limited/web", 1000, 500); err != nil {
		t.Error(err)
	}
	r.want("with these rights", "limited", 500)
	asked := s.Ask(t.Context())
	answers(t, "an agent asks for its rights", asked, "who asks: system:serviceaccount:"+r.namespace+":quell-agent",
		"rights on deployments/scale: get", "rights on pods: list, watch", "rights on pods/resize: patch")
	for _, o := range mine {
		if o.GetKind() == "Role" {
			r.applyAs([]*unstructured.Unstructured{without(t, o, "patch")}, "quell-agent")
		}
	}
	until(t, "the missing right is named", func() bool {
		err := n.SetLimit(r.namespace+"/limited/web", 500, 400)
		return err != nil && strings.Contains(err.Error(), `cannot patch resource "pods/resize"`)
	})
	answers(t, "an agent asks without a right", s.Ask(t.Context()), "who asks", "deployments/scale: get", "pods: list, watch",
		`FAILED Kubernetes: rights on pods/resize: system:serviceaccount:`+r.namespace+`:quell-agent may not patch pods/resize in namespace `+
			r.namespace+`: add the rule {apiGroups: [""], resources: [pods/resize], verbs: [patch]}`)
	used := r.usedBy("quell-agent")
	for _, review := range []string{"authorization.k8s.io selfsubjectaccessreviews", "authentication.k8s.io selfsubjectreviews"} {
		delete(used, review+" create") // everybody may ask for himself
	}
	if want, got := slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(used)); !slices.Equal(want, got) {
		t.Errorf("granted:\n%s\nused:\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}

// admin is a driver of the user who may do everything.
func (r *rig) admin() *Driver {
	own := *r
	own.config = r.plane.Config
	return own.driver()
}
