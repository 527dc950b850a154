package aws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scaler/aws/standin"
)

func TestMain(m *testing.M) {
	code := m.Run()
	standin.Stop()
	os.Exit(code)
}

// rig is a group of its own at moto, and a connection to it that can fail, and that says what moto cannot: moto ends instances at once, and
// knows no lifecycle states.
type rig struct {
	t     *testing.T
	group string
	admin *autoscaling.Client
	opts  Options

	mu     sync.Mutex
	kill   func(write int, answered bool) bool // whether the user of this connection is killed now
	writes []string                            // that were carried out
	states map[string]string                   // lifecycle states of instances that moto does not know
	answer map[string]string                   // answers to actions in place of moto's
	refuse map[string]string                   // codes of errors by which actions are refused
	cut    bool                                // AWS cannot be reached
	asked  map[string]int                      // how often each action was tried
}

var rigs atomic.Int64

func newRig(t *testing.T, instances int32) *rig {
	t.Helper()
	r := &rig{t: t, group: fmt.Sprintf("web-%d", rigs.Add(1)), states: map[string]string{}, answer: map[string]string{},
		refuse: map[string]string{}, asked: map[string]int{}}
	endpoint := standin.Moto(t)
	config := sdk.Config{Region: "eu-west-1", BaseEndpoint: &endpoint,
		Credentials: sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) {
			return sdk.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		})}
	r.admin = autoscaling.NewFromConfig(config)
	r.must(r.admin.CreateLaunchConfiguration(t.Context(), &autoscaling.CreateLaunchConfigurationInput{
		LaunchConfigurationName: &r.group, ImageId: sdk.String("ami-12c6146b"), InstanceType: sdk.String("t3.medium"),
	}))
	r.must(r.admin.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: &r.group, LaunchConfigurationName: &r.group, AvailabilityZones: []string{"eu-west-1a"},
		MinSize: sdk.Int32(1), MaxSize: sdk.Int32(10), DesiredCapacity: &instances,
	}))
	config.HTTPClient = &http.Client{Transport: r}
	r.opts = Options{
		Settings: Settings{Group: r.group, Port: 8080, ProbePort: 8700, Use: private, Every: 500 * time.Millisecond, Hook: "drain"},
		limit:    time.Minute, // moto may be slow on a busy machine
		Load:     func(context.Context) (sdk.Config, error) { return config.Copy(), nil },
	}
	return r
}

func (r *rig) must(_ any, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// driver makes a driver that connects as the rig's user.
func (r *rig) driver() *Driver {
	d := New(r.opts)
	r.t.Cleanup(func() { _ = d.Close() })
	return d
}

var errKilled = errors.New("the controller was killed")

// isWrite returns whether an action changes something.
func isWrite(action string) bool {
	return !strings.HasPrefix(action, "Describe") && action != "GetCallerIdentity"
}

// RoundTrip passes a request on, unless it fails here.
func (r *rig) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	defer r.mu.Unlock()
	action := form.Get("Action")
	r.asked[action]++
	switch code := r.refuse[action]; {
	case r.cut:
		return nil, errors.New("the cable is cut")
	case isWrite(action) && r.killed(false):
		return nil, errKilled
	case code != "":
		text := fmt.Sprintf("<Error><Type>Sender</Type><Code>%s</Code><Message>refused for a test</Message></Error>", code)
		if strings.Contains(action, "Spot") || action == "DescribeInstances" { // EC2's form
			return xmlAnswer(http.StatusBadRequest, "<Response><Errors>"+text+"</Errors></Response>"), nil
		}
		return xmlAnswer(http.StatusBadRequest, "<ErrorResponse>"+text+"</ErrorResponse>"), nil
	case r.answer[action] != "":
		r.note(action, form)
		return xmlAnswer(http.StatusOK, r.answer[action]), nil
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil || answer.StatusCode >= http.StatusMultipleChoices {
		return answer, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if isWrite(action) {
		r.note(action, form)
		if r.killed(true) {
			return nil, errKilled
		}
	}
	for id, state := range r.states {
		text = withState(text, id, state)
	}
	return xmlAnswer(http.StatusOK, string(text)), nil
}

func (r *rig) killed(answered bool) bool {
	n := len(r.writes)
	if !answered {
		n++
	}
	return r.kill != nil && r.kill(n, answered)
}

func (r *rig) note(action string, form url.Values) {
	if isWrite(action) {
		r.writes = append(r.writes, strings.TrimSpace(action+" "+form.Get("InstanceId")))
	}
}

func xmlAnswer(status int, text string) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Content-Type": {"text/xml"}},
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text))}
}

// withState gives an instance another lifecycle state in an answer.
func withState(text []byte, id, state string) []byte {
	before, after, found := bytes.Cut(text, []byte("<InstanceId>"+id+"</InstanceId>"))
	if !found {
		return text
	}
	after = bytes.Replace(after, []byte("<LifecycleState>InService<"), []byte("<LifecycleState>"+state+"<"), 1)
	return slices.Concat(before, []byte("<InstanceId>"+id+"</InstanceId>"), after)
}

// set changes the connection.
func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// carried returns the writes that were carried out.
func (r *rig) carried() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.writes)
}

// seen returns the group as AWS has it.
func (r *rig) seen() types.AutoScalingGroup {
	r.t.Helper()
	out, err := r.admin.DescribeAutoScalingGroups(r.t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{r.group},
	})
	if err != nil || len(out.AutoScalingGroups) != 1 {
		r.t.Fatal(out, err)
	}
	return out.AutoScalingGroups[0]
}

// desired is the number of instances that AWS is to run.
func (r *rig) desired() int { return int(*r.seen().DesiredCapacity) }

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
	until(t, fmt.Sprintf("%d members are ready", n), func() bool {
		members, err := d.Members(t.Context())
		last = members
		return err == nil && len(members) == n &&
			!slices.ContainsFunc(members, func(m quell.Member) bool { return m.State != quell.Ready })
	})
	return quell.IDs(last)
}

// inState waits until the driver lists an instance in this state.
func inState(t *testing.T, d *Driver, id string, want quell.State) {
	t.Helper()
	until(t, fmt.Sprintf("%s is %s", id, want), func() bool {
		members, err := d.Members(t.Context())
		i := slices.IndexFunc(members, func(m quell.Member) bool { return m.ID == id })
		return err == nil && i >= 0 && members[i].State == want
	})
}

// reported waits until the driver reports something with this text.
func reported(t *testing.T, d *Driver, text string) {
	t.Helper()
	var err error
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last report: %v", err)
		}
	})
	until(t, "the report says "+text, func() bool { err = d.Report(); return err != nil && strings.Contains(err.Error(), text) })
}
