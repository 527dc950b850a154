package kubernetes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/scaler"
)

// manifests are the objects of the example, with another namespace.
func manifests(t *testing.T, namespace string) (objects []*unstructured.Unstructured) {
	t.Helper()
	file, err := os.Open("../../examples/kubernetes/quell.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for reader := yaml.NewYAMLReader(bufio.NewReader(file)); ; {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		o := map[string]any{}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "shop", namespace)), &o); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		objects = append(objects, &unstructured.Unstructured{Object: o})
	}
}

// resourceOf is the resource of an object of the example.
func resourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	kind := o.GroupVersionKind()
	return kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
}

// apply applies the objects as kubectl apply --server-side does, and returns a connection as the controller's service account.
func (r *rig) apply(objects []*unstructured.Unstructured) *rest.Config {
	return r.applyAs(objects, "quell")
}

// applyAs is apply with a connection as another service account.
func (r *rig) applyAs(objects []*unstructured.Unstructured, account string) *rest.Config {
	r.t.Helper()
	for _, o := range objects {
		client := r.plane.Client.Resource(resourceOf(o))
		options := metav1.ApplyOptions{FieldManager: "kubectl"}
		var err error
		if o.GetNamespace() == "" {
			_, err = client.Apply(r.t.Context(), o.GetName(), o, options)
		} else {
			_, err = client.Namespace(o.GetNamespace()).Apply(r.t.Context(), o.GetName(), o, options)
		}
		if err != nil {
			r.t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	token, err := r.plane.Client.Resource(accounts).Namespace(r.namespace).Create(r.t.Context(),
		object("authentication.k8s.io/v1", "TokenRequest", account, map[string]any{"spec": map[string]any{}}), metav1.CreateOptions{}, "token")
	if err != nil {
		r.t.Fatal(err)
	}
	own := rest.CopyConfig(r.plane.Config)
	own.BearerToken, _, _ = unstructured.NestedString(token.Object, "status", "token")
	return own
}

// TestRightsAreThoseUsed plays a life with the example's service account, and compares its rights with what the API server's audit log saw.
func TestRightsAreThoseUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t, deployments, 2)
	objects := manifests(t, r.namespace)
	r.config = r.apply(objects)
	d := r.driver()
	ids := ready(t, d, 2)
	silent(t, d) // the nodes, too
	if _, err := d.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ready(t, d, 3)
	stop(t, d, ids[:1])
	ready(t, d, 2)
	granted, used := map[string]bool{}, r.used()
	for _, o := range objects {
		if strings.HasSuffix(o.GetKind(), "Role") {
			maps.Copy(granted, rightsOf(o))
		}
	}
	if want, got := slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(used)); !slices.Equal(want, got) {
		t.Errorf("granted:\n%s\nused:\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	asked := map[string]bool{}
	for _, need := range d.opts.rights() {
		for _, verb := range need.verbs {
			asked[strings.TrimSpace(need.group+" "+need.resource+" "+verb)] = true
		}
	}
	if !maps.Equal(asked, granted) {
		t.Errorf("granted:\n%v\nasked by `quell config check --online`:\n%v", granted, asked)
	}
	// Without a right, the verb that is missing is named.
	r.config.QPS = -1
	for _, o := range objects {
		if o.GetKind() == "Role" {
			r.apply([]*unstructured.Unstructured{without(t, o, "patch", "create")})
		}
	}
	until(t, "the missing verb is named", func() bool {
		_, err := d.Start(t.Context(), 1)
		return err != nil && strings.Contains(err.Error(), `cannot patch resource "deployments/scale" in API group "apps"`)
	})
}

// rightsOf are the rights of a role, as in "apps deployments/scale patch".
func rightsOf(role *unstructured.Unstructured) map[string]bool {
	rights := map[string]bool{}
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	for _, rule := range rules {
		groups, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "apiGroups")
		resources, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
		verbs, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "verbs")
		for _, group := range groups {
			for _, resource := range resources {
				for _, verb := range verbs {
					rights[strings.TrimSpace(fmt.Sprintf("%s %s %s", group, resource, verb))] = true
				}
			}
		}
	}
	return rights
}

// used are the rights that the rig's service account has used.
func (r *rig) used() map[string]bool { return r.usedBy("quell") }

func (r *rig) usedBy(account string) map[string]bool {
	r.t.Helper()
	log, err := os.ReadFile(r.plane.Audit)
	if err != nil {
		r.t.Fatal(err)
	}
	rights := map[string]bool{}
	for line := range strings.Lines(string(log)) {
		var event struct {
			Verb string
			User struct{ Username string }
			Ref  struct {
				Resource, Subresource, APIGroup string
			} `json:"objectRef"`
		}
		if json.Unmarshal([]byte(line), &event) != nil || event.User.Username != "system:serviceaccount:"+r.namespace+":"+account {
			continue
		}
		resource := event.Ref.Resource
		if event.Ref.Subresource != "" {
			resource += "/" + event.Ref.Subresource
		}
		rights[strings.TrimSpace(fmt.Sprintf("%s %s %s", event.Ref.APIGroup, resource, event.Verb))] = true
	}
	return rights
}

// TestExampleIsSound checks the example's configuration.
func TestExampleIsSound(t *testing.T) {
	for _, o := range manifests(t, "shop") {
		if o.GetKind() != "ConfigMap" {
			continue
		}
		file := loaded(t, o)
		if s := file.Scaler.Settings.(*Settings); s.Target != "deployment/web" || !file.Scaler.Changes() {
			t.Errorf("settings = %+v", s)
		}
	}
}

// loaded is the configuration in a ConfigMap.
func loaded(t *testing.T, o *unstructured.Unstructured) *config.File {
	t.Helper()
	text, _, _ := unstructured.NestedString(o.Object, "data", "quell.yaml")
	path := filepath.Join(t.TempDir(), "quell.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := config.Drivers{Balancers: []balancer.Kind{builtin.Kind}, Scalers: []scaler.Kind{Kind}}.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
