package kubernetes

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/quellhq/quell/scaler"
)

// answers checks that each of these texts is part of one line, as `quell config check --online` writes it, and that no other line fails.
func answers(t *testing.T, what string, got []scaler.Answer, want ...string) {
	t.Helper()
	var text strings.Builder
	fails := 0
	for _, a := range got {
		if a.Err != nil {
			fails++
			text.WriteString("FAILED " + a.Asked + ": " + a.Err.Error() + "\n")
		} else {
			text.WriteString(a.Asked + ": " + a.Got + "\n")
		}
	}
	for _, w := range want {
		if strings.HasPrefix(w, "FAILED") {
			fails--
		}
		if !strings.Contains(text.String(), w) {
			t.Errorf("%s: %q is missing in\n%s", what, w, text.String())
		}
	}
	if fails != 0 {
		t.Errorf("%s: %d more failures than expected:\n%s", what, fails, text.String())
	}
}

// TestAsk asks a real API server what `quell config check --online` asks it.
func TestAsk(t *testing.T) {
	t.Parallel()
	r := newRig(t, deployments, 2)
	ready(t, r.driver(), 2)
	objects := manifests(t, r.namespace)
	r.config = r.apply(objects)
	opts := r.options()
	user := "system:serviceaccount:" + r.namespace + ":quell"
	answers(t, "with the example's role", ask(t.Context(), opts),
		"Kubernetes: API server "+opts.Config.Host+": who asks: "+user+"\n", "Kubernetes: rights on deployments: list, watch\n",
		"Kubernetes: rights on deployments/scale: get, patch\n", "Kubernetes: rights on pods: list, watch, patch\n",
		"Kubernetes: rights on horizontalpodautoscalers: list, watch\n", "Kubernetes: rights on pods/eviction: create\n",
		"Kubernetes: rights on nodes: list, watch\n", "Kubernetes: deployments web in namespace "+r.namespace+": exists\n",
		"Kubernetes: pods of deployments web in namespace "+r.namespace+": 2, of which 2 are ready\n",
		"Kubernetes: autoscaler of deployments web in namespace "+r.namespace+": none\n")

	opts.Joins.On = true
	r.make(hpas, r.namespace, object("autoscaling/v2", "HorizontalPodAutoscaler", "auto", map[string]any{"spec": map[string]any{
		"maxReplicas": int64(5), "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
	}}))
	tokens := "FAILED Kubernetes: rights on tokenreviews: " + user + " may not create tokenreviews: add the rule {apiGroups: " +
		`["authentication.k8s.io"], resources: [tokenreviews], verbs: [create]} to a ClusterRole that is bound to that user`
	answers(t, "with an autoscaler", ask(t.Context(), opts), tokens, "FAILED Kubernetes: autoscaler of deployments web in namespace "+
		r.namespace+": nothing is started or stopped: the horizontal pod autoscaler auto scales", "kubectl delete -n "+r.namespace+" hpa auto")

	for _, o := range objects { // a role that is enough to advise
		if o.GetKind() == "Role" {
			r.apply([]*unstructured.Unstructured{without(t, o, "patch", "create")})
		}
	}
	until(t, "the role has changed", func() bool {
		return ask(t.Context(), opts)[2].Err != nil
	})
	rule := ` to a Role there that is bound to that user`
	answers(t, "with a role that only reads", ask(t.Context(), opts), tokens,
		"FAILED Kubernetes: rights on deployments/scale: "+user+" may not patch deployments/scale in namespace "+r.namespace+
			`: add the rule {apiGroups: ["apps"], resources: [deployments/scale], resourceNames: [web], verbs: [patch]}`+rule,
		`FAILED Kubernetes: rights on pods: `+user+` may not patch pods in namespace `+r.namespace+
			`: add the rule {apiGroups: [""], resources: [pods], verbs: [patch]}`+rule,
		"FAILED Kubernetes: rights on pods/eviction: ", "FAILED Kubernetes: autoscaler of ")
	opts.Joins.On, opts.Advises = false, true
	answers(t, "when Quell only advises", ask(t.Context(), opts), ": auto; remove it before `mode: act`\n")
}

// TestAskInVain checks what is said if there is no target, no right at all, and no API server.
func TestAskInVain(t *testing.T) {
	t.Parallel()
	r := newBareRig(t, deployments, 0)
	opts := r.options()
	opts.Name = "wbe"
	answers(t, "no such target", ask(t.Context(), opts), "FAILED Kubernetes: deployments wbe in namespace "+r.namespace+
		": there is no such object: `kubectl get deployments -n "+r.namespace+"` lists those that exist")
	r.patch(`{"metadata":{"annotations":{"quell/paused":"true"}}}`)
	answers(t, "paused", ask(t.Context(), r.options()), ": exists, and its annotation quell/paused keeps Quell from")
	opts.Resource.Resource = "rollouts"
	answers(t, "no such kind", ask(t.Context(), opts), "FAILED Kubernetes: rollouts wbe in namespace "+r.namespace+
		": the server could not find the requested resource")

	r.make(accounts, r.namespace, object("v1", "ServiceAccount", "nobody", nil))
	opts = r.options()
	opts.Config = r.applyAs(nil, "nobody")
	opts.Nodes = false
	all := "FAILED Kubernetes: rights on "
	answers(t, "no rights", ask(t.Context(), opts), all+"deployments: ", all+"deployments/scale: ", all+"pods: ", all+"pods/eviction: ",
		all+"horizontalpodautoscalers: ")
	opts.Config = rest.CopyConfig(opts.Config)
	opts.Config.BearerToken = "wrong"
	answers(t, "a wrong token", ask(t.Context(), opts), "FAILED Kubernetes: API server "+opts.Config.Host+": who asks: Unauthorized. "+
		"scaler.kubeconfig and scaler.context say")
	opts.Config = &rest.Config{Host: "http://127.0.0.1:1"}
	answers(t, "no API server", ask(t.Context(), opts), "FAILED Kubernetes: API server http://127.0.0.1:1: who asks: ")
}

// without returns a role without some verbs.
func without(t *testing.T, role *unstructured.Unstructured, verbs ...string) *unstructured.Unstructured {
	t.Helper()
	less := role.DeepCopy()
	rules, _, _ := unstructured.NestedSlice(less.Object, "rules")
	for _, rule := range rules {
		rule := rule.(map[string]any)
		rule["verbs"] = slices.DeleteFunc(rule["verbs"].([]any), func(v any) bool { return slices.Contains(verbs, v.(string)) })
	}
	rules = slices.DeleteFunc(rules, func(r any) bool { return len(r.(map[string]any)["verbs"].([]any)) == 0 })
	if err := unstructured.SetNestedSlice(less.Object, rules, "rules"); err != nil {
		t.Fatal(err)
	}
	return less
}
