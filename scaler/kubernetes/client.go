package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/quellhq/quell"
)

// requestWait limits how long a request may take, watches aside. Decisions must not wait for an API server that hangs.
const requestWait = 5 * time.Second

// connection returns how the API server is reached, and the namespace that goes with it.
func connection(kubeconfig, context string) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
	config, err := loading.ClientConfig()
	if err != nil {
		return nil, "", &quell.UserError{Err: fmt.Errorf("scaler: how the API server of Kubernetes is reached: %w", err)}
	}
	namespace, _, err := loading.Namespace()
	if err != nil {
		return nil, "", &quell.UserError{Err: fmt.Errorf("scaler.namespace: %w", err)}
	}
	config.UserAgent = "quell"
	return config, namespace, nil
}

// clients are the parts of the API that are used. A set of all would make the program three times as large.
type clients struct {
	core, autoscaling, authentication, authorization rest.Interface
	objects                                          dynamic.Interface
}

// Reviews of tokens: many pods may join at once.
const reviewsPerS, reviewsAtOnce = 20, 100

// quiet keeps the client's own log off standard error: Report says what fails.
var quiet = sync.OnceFunc(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) })

func connect(config *rest.Config) (c clients, err error) {
	quiet()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, autoscalingv1.AddToScheme, policyv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return c, err
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, err
	}
	client := func(version schema.GroupVersion, path string) (*rest.RESTClient, error) {
		own := rest.CopyConfig(config)
		if version == authenticationv1.SchemeGroupVersion && own.QPS == 0 {
			own.QPS, own.Burst = reviewsPerS, reviewsAtOnce
		}
		own.GroupVersion, own.APIPath = &version, path
		own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		own.ContentType = runtime.ContentTypeProtobuf
		return rest.RESTClientForConfigAndClient(own, transport)
	}
	core, err := client(corev1.SchemeGroupVersion, "/api")
	if err != nil {
		return c, err
	}
	autoscaling, err := client(autoscalingv1.SchemeGroupVersion, "/apis")
	if err != nil {
		return c, err
	}
	authentication, err := client(authenticationv1.SchemeGroupVersion, "/apis")
	if err != nil {
		return c, err
	}
	authorization, err := client(authorizationv1.SchemeGroupVersion, "/apis")
	if err != nil {
		return c, err
	}
	objects, err := dynamic.NewForConfigAndClient(config, transport)
	return clients{core, autoscaling, authentication, authorization, objects}, err
}

// mirror is a copy of a list at the API server that a watch keeps up to date. If the server is away, the copy stays as it is.
type mirror struct {
	what     string
	informer cache.SharedIndexInformer
	stop     context.CancelFunc
	mu       sync.Mutex
	failed   error // of the last request; nil if it worked
}

// source is where a mirror's list comes from.
type source struct {
	list  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error)
}

// newMirror begins to copy. kind is an empty object of the list. trim drops what is not needed of an object.
func newMirror(what string, from source, kind runtime.Object, trim cache.TransformFunc) (*mirror, error) {
	m := &mirror{what: what}
	m.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := from.list(ctx, o)
			return list, m.note(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			w, err := from.watch(ctx, o)
			return w, m.note(err)
		},
	}, kind, 0, cache.Indexers{})
	if trim != nil {
		if err := m.informer.SetTransform(trim); err != nil {
			return nil, err
		}
	}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	go m.informer.RunWithContext(ctx)
	return m, nil
}

func (m *mirror) note(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !errors.Is(err, context.Canceled) {
		m.failed = err
	}
	return err
}

// problem returns why the copy may be out of date, nil if it is not.
func (m *mirror) problem() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.failed != nil:
		return fmt.Errorf("watching %s: %w", m.what, plain(m.failed))
	case !m.informer.HasSynced():
		return fmt.Errorf("watching %s: no answer yet", m.what)
	}
	return nil
}

// objectsOf returns the objects of a mirror. They must not be changed.
func objectsOf[T any](m *mirror) []T {
	stored := m.informer.GetStore().List()
	objects := make([]T, 0, len(stored))
	for _, o := range stored {
		if object, ok := o.(T); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

// listed is the source of all objects of a resource that fit the selector of labels.
func listed(client rest.Interface, namespace, resource, labels string, empty func() runtime.Object) source {
	return chosen(client, namespace, resource, labels, "", empty)
}

// chosen is the source of all objects of a resource that fit the selectors of labels and of fields.
func chosen(client rest.Interface, namespace, resource, labels, fields string, empty func() runtime.Object) source {
	request := func(o metav1.ListOptions) *rest.Request {
		o.LabelSelector, o.FieldSelector = labels, fields
		r := client.Get().Resource(resource).VersionedParams(&o, metav1.ParameterCodec)
		if namespace != "" {
			r = r.Namespace(namespace)
		}
		return r
	}
	return source{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := empty()
			return list, request(o).Do(ctx).Into(list)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.Watch = true
			return request(o).Watch(ctx)
		},
	}
}

// named is the source of the one object of that name.
func named(client dynamic.ResourceInterface, name string) source {
	only := fields.OneTermEqualSelector("metadata.name", name).String()
	return source{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			list, err := client.List(ctx, o)
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = only
			return client.Watch(ctx, o)
		},
	}
}
