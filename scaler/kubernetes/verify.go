package kubernetes

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quellhq/quell/scaler"
)

// Proof is the kind of proof that pods have: the token of their service account.
const Proof = "kubernetes"

// Audience is whom a token is for that proves to Quell. One that is for the API server, such as every pod has, is refused: whoever gets it
// could use it there.
const Audience = "quell"

// Joining says which tokens prove that their holder is an instance.
type Joining struct {
	On         bool
	Audience   string
	NodeAgents string // NAMESPACE/NAME of the service account of agents of whole nodes; "": there are none
}

// Names of what the API server knows of a token's holder.
const (
	extraPod    = "authentication.kubernetes.io/pod-name"
	extraPodUID = "authentication.kubernetes.io/pod-uid"
	extraNode   = "authentication.kubernetes.io/node-name"
)

// Verify returns an error if the token of a service account does not show that its holder is a pod of the target. Such a token is bound to
// its pod: either that is the instance, or an agent on the instance's node. A StatefulSet's pods have the names of earlier ones, so the
// machine is the pod's uid.
func (d *Driver) Verify(ctx context.Context, instance, proof string, _ bool) (machine string, err error) {
	pods, err := d.watched(ctx)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name == instance })
	if i < 0 {
		return "", scaler.Unprovedf("%s is no pod of %s", instance, d.words())
	}
	if err := meant(proof, d.opts.Joins.Audience); err != nil {
		return "", err
	}
	user, err := d.review(ctx, proof)
	if err != nil {
		return "", err
	}
	return string(pods[i].UID), d.opts.Joins.vouches(user, pods[i])
}

// meant refuses what is no token for an audience, without asking the API server.
func meant(token, audience string) error {
	var claims struct {
		Audience []string `json:"aud"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return scaler.Unprovedf("its proof is no token of a service account")
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(data, &claims)
	}
	if err != nil {
		return scaler.Unprovedf("its proof is no token of a service account that is bound to a pod")
	}
	if !slices.Contains(claims.Audience, audience) {
		return scaler.Unprovedf("its token is for %q, not for %q: project one with `audience: %s` (scaler.audience)", claims.Audience, audience,
			audience)
	}
	return nil
}

// review asks the API server who the holder of a token is.
func (d *Driver) review(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	ask := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{d.opts.Joins.Audience}}}
	answer := &authenticationv1.TokenReview{}
	err := d.api.authentication.Post().Resource("tokenreviews").VersionedParams(&metav1.CreateOptions{}, metav1.ParameterCodec).
		Body(ask).Do(ctx).Into(answer)
	if err != nil {
		return nil, fmt.Errorf("asking the API server whose token it is: %w", plain(err))
	}
	if s := answer.Status; !s.Authenticated || !slices.Contains(s.Audiences, d.opts.Joins.Audience) {
		return nil, scaler.Unprovedf("the API server does not accept its token: it has expired, its pod is gone, or it is of another cluster")
	}
	return &answer.Status.User, nil
}

// vouches returns why the holder of a token may not report for a pod, nil if it may.
func (j Joining) vouches(user *authenticationv1.UserInfo, pod *corev1.Pod) error {
	account, ok := strings.CutPrefix(user.Username, "system:serviceaccount:")
	namespace, name, both := strings.Cut(account, ":")
	if !ok || !both {
		return scaler.Unprovedf("its token is that of %s, not of a service account", user.Username)
	}
	own, uid, node := extra(user, extraPod), extra(user, extraPodUID), extra(user, extraNode)
	if own == "" || uid == "" {
		return scaler.Unprovedf("its token is bound to no pod: project it into the pod")
	}
	if namespace == pod.Namespace && own == pod.Name && uid == string(pod.UID) {
		return nil
	}
	if j.NodeAgents != namespace+"/"+name {
		return scaler.Unprovedf("its token is that of pod %s of %s/%s, not of pod %s", own, namespace, name, pod.Name)
	}
	if node == "" {
		return errors.New("the API server does not say on which node the pod of a token is: that needs Kubernetes 1.32 or newer")
	}
	if node != pod.Spec.NodeName {
		return scaler.Unprovedf("its token is that of an agent on node %s, and pod %s is on node %q", node, pod.Name, pod.Spec.NodeName)
	}
	return nil
}

// extra returns the only value that the API server has under a name, "" if there is none.
func extra(user *authenticationv1.UserInfo, name string) string {
	if v := user.Extra[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}
