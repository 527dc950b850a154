package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/scaler/aws/standin"
)

// ec2 is an Auto Scaling group of a stand-in for AWS, whose instances are addresses of this machine, where one server answers for all.
type ec2 struct {
	*rig
	name   string
	group  *autoscaling.Client
	api    string // of AWS, for the controller
	signer standin.Signer
	port   int
}

const ec2Account, ec2Region = "123456789012", "eu-west-1"

func newEC2(t *testing.T, instances int32) *ec2 {
	t.Helper()
	moto := standin.Moto(t)
	e := &ec2{rig: newRig(t, ""), name: t.Name(), signer: standin.NewSigner(t, 2048, time.Now().Add(time.Hour))}
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	e.port = listener.Addr().(*net.TCPAddr).Port
	e.serve(listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	e.api = e.onLoopback(moto)
	config := sdk.Config{Region: ec2Region, BaseEndpoint: &moto,
		Credentials: sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) {
			return sdk.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		})}
	e.group = autoscaling.NewFromConfig(config)
	_, err = e.group.CreateLaunchConfiguration(t.Context(), &autoscaling.CreateLaunchConfigurationInput{
		LaunchConfigurationName: &e.name, ImageId: sdk.String("ami-12c6146b"), InstanceType: sdk.String("t3.medium"),
	})
	if err == nil {
		_, err = e.group.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
			AutoScalingGroupName: &e.name, LaunchConfigurationName: &e.name, AvailabilityZones: []string{ec2Region + "a"},
			MinSize: sdk.Int32(1), MaxSize: sdk.Int32(10), DesiredCapacity: &instances,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *ec2) serve(listener net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	e.t.Cleanup(func() { _ = server.Close() })
}

// onLoopback is moto's API with addresses of instances that this machine has.
func (e *ec2) onLoopback(moto string) string {
	e.t.Helper()
	target, err := url.Parse(moto)
	if err != nil {
		e.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.t.Fatal(err)
	}
	private := regexp.MustCompile(`(<privateIpAddress>)\d+\.`)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	proxy.ModifyResponse = func(r *http.Response) error {
		text, err := io.ReadAll(r.Body)
		text = private.ReplaceAll(text, []byte("${1}127."))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		r.Header.Set("Content-Length", strconv.Itoa(len(text)))
		return err
	}
	e.serve(listener, proxy)
	return "http://" + listener.Addr().String()
}

// size writes the configuration for a group of this size.
func (e *ec2) size(instances int) {
	e.t.Helper()
	e.write(fmt.Sprintf(`policy: {name: static}
mode: act
group: {min: %d, max: %d, startup: 30s}
probe: {capacity: 40Mbps}
scaler: {kind: aws, group: %s, region: %s, endpoint: %q, port: %d, every: 1s, join_within: 1h, identity_certificate: %q}
`, instances, instances, e.name, ec2Region, e.api, e.port, e.signer.File))
}

// startController starts one with credentials of AWS.
func (e *ec2) startController() *proc {
	e.t.Helper()
	cmd := exec.Command(quellProgram, "controller", "--config", e.config)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true")
	return e.launch("controller", cmd)
}

// boot starts the agent of an instance whose metadata have this proof.
func (e *ec2) boot(name, instance, proof string) *proc {
	e.t.Helper()
	return e.bootWith(e.instance(name, instance, "proof: aws"), proof)
}

// instance writes the configuration of an agent that joins so.
func (e *ec2) instance(name, instance, by string) (config string) {
	e.t.Helper()
	config = e.machine(name, instance)
	if err := os.WriteFile(config, []byte(strings.Replace(e.text(config), "join: web.join", by, 1)), 0o600); err != nil {
		e.t.Fatal(err)
	}
	return config
}

func (e *ec2) bootWith(config, proof string) *proc {
	e.t.Helper()
	cmd := exec.Command(quellProgram, "agent", "--config", config)
	cmd.Env = append(os.Environ(), "AWS_EC2_METADATA_SERVICE_ENDPOINT="+standin.Metadata(e.t, proof))
	return e.launch("agent", cmd)
}

func (e *ec2) document(instance, account, region string) string {
	return standin.Document(instance, account, region, time.Now())
}

// TestEC2InstancesJoin plays agents on EC2, whose proof is the identity document that the metadata service gives them: they get a
// credential and report, a false document is refused, and an instance that the scaler ends loses its credential.
func TestEC2InstancesJoin(t *testing.T) {
	t.Parallel()
	e := newEC2(t, 2)
	e.size(2)
	first := e.startController()
	e.start("balancer")
	s := e.awaitStatus("two instances", func(s controller.Status) bool { return len(s.Instances) == 2 })
	one, two := s.Instances[0].ID, s.Instances[1].ID
	agents := map[string]*proc{one: e.boot("one", one, e.signer.Sign(t, e.document(one, ec2Account, ec2Region)))}
	e.awaitReports(one)

	thief := standin.NewSigner(t, 2048, time.Now().Add(time.Hour))
	for name, tc := range map[string]struct{ proof, why string }{
		"forged":  {thief.Sign(t, e.document(two, ec2Account, ec2Region)), "its identity document was not signed by AWS"},
		"account": {e.signer.Sign(t, e.document(two, "999999999999", ec2Region)), "the group is of " + ec2Account},
		"region":  {e.signer.Sign(t, e.document(two, ec2Account, "us-east-1")), "the group is in " + ec2Region},
		"other":   {e.signer.Sign(t, e.document(one, ec2Account, ec2Region)), "its identity document is that of"},
	} {
		p := e.boot(name, two, tc.proof)
		e.await(name+" to be refused", func() (bool, any) { return has(p.said(), tc.why), p.said() })
		p.kill(t)
	}
	agents[two] = e.boot("two", two, e.signer.Sign(t, e.document(two, ec2Account, ec2Region)))
	e.awaitReports(two)
	e.await("the journal", func() (bool, any) {
		out, _ := e.quell("journal", "--config", e.config)
		return has(out, "joined: "+one+" (with a proof of aws", "joined: "+two+" (with a proof of aws", "refused to join: a proof of aws"), out
	})

	e.size(1)
	first.kill(t)
	e.startController()
	s = e.awaitStatus("one instance", func(s controller.Status) bool { return len(s.Instances) == 1 })
	gone := map[string]string{one: two, two: one}[s.Instances[0].ID]
	e.await("the credential of "+gone+" to be revoked", func() (bool, any) {
		said := agents[gone].said()
		return has(said, "refused the credential of sensor "+gone, "it was revoked"), said
	})
	e.awaitReports(s.Instances[0].ID)
}

// TestEC2InstancesJoinOverAnExternalNATS is the same where the bus is a NATS server of its own, with the configuration that Quell prints
// for it: controller, balancer and agent work over it, and nobody gets in without a credential.
func TestEC2InstancesJoinOverAnExternalNATS(t *testing.T) {
	t.Parallel()
	e := newEC2(t, 1)
	e.size(1)
	groups, err := e.group.DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{e.name},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := *groups.AutoScalingGroups[0].Instances[0].InstanceId
	with, without := e.instance("with", id, "proof: aws, join: prove.creds"), e.instance("without", id, "proof: aws")
	text := strings.Replace(e.text(e.config), fmt.Sprintf("bus: {listen: %q}", e.bus), fmt.Sprintf("bus: {url: \"nats://%s\"}", e.bus), 1)
	if err := os.WriteFile(e.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	made := func(args ...string) string {
		t.Helper()
		out, status := e.quell(append(append([]string{"credentials"}, args...), "--config", e.config)...)
		if status != 0 {
			t.Fatal(out)
		}
		return out
	}
	made("controller")
	made("balancer", "balancer")
	made("prove", "aws", "--out", filepath.Join(e.dir, "prove.creds"))
	n := &natsNode{Name: "nats", Config: filepath.Join(e.dir, "nats.conf")}
	own := fmt.Sprintf("listen: %q\njetstream: {store_dir: %q}\n", e.bus, filepath.Join(e.dir, "nats"))
	if err := os.WriteFile(n.Config, []byte(own+made("nats")), 0o600); err != nil {
		t.Fatal(err)
	}
	e.startNode(n)
	e.startController()
	e.start("balancer")
	e.awaitStatus("an instance", func(s controller.Status) bool { return len(s.Instances) == 1 })
	proof := e.signer.Sign(t, e.document(id, ec2Account, ec2Region))
	stranger := e.bootWith(without, proof)
	e.await("an agent without a credential to be kept out", func() (bool, any) {
		said := stranger.said()
		return has(said, "no credential for the bus"), said
	})
	stranger.kill(t)
	e.bootWith(with, proof)
	e.awaitReports(id)
}
