package aws

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/setting"
)

// Kind is the scaler whose instances are those of an Auto Scaling group.
var Kind = scaler.Kind{
	Name: "aws", About: "instances of an EC2 Auto Scaling group",
	Defaults: func() scaler.Settings { return &Settings{Every: 5 * time.Second, Use: private} },
}

// address is which address of an instance is used.
type address string

const (
	private address = "private"
	public  address = "public"
	ipv6    address = "ipv6"
)

// Settings are its configuration.
type Settings struct {
	Group, Region, Endpoint string
	Port, ProbePort         int
	Use                     address
	Hook                    string // of termination; "": none
	Every                   time.Duration
	BesidePolicies          bool
	StopProtected           bool
	JoinWithin              time.Duration // 0: identity documents are no proof
	Certificate             string        // file of the region's certificate; "": AWS's, as Quell knows it
	advises                 bool          // others may scale the group
}

// Keys is the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Req("group", setting.Text(&s.Group), "name of the Auto Scaling group"),
		setting.Opt("region", setting.Ident(&s.Region), "its region, as in eu-west-1").Or("from AWS_REGION or this machine's metadata"),
		setting.Req("port", setting.Whole(&s.Port).Between(1, 65535), "port of the service on each instance"),
		setting.Opt("probe_port", setting.Whole(&s.ProbePort).Between(1, 65535), "port of the agents' probe servers").Or("none"),
		setting.Opt("address", setting.OneOf(&s.Use, []address{private, public, ipv6}), "which address of an instance is used"),
		setting.Opt("hook", setting.Text(&s.Hook),
			"name of a lifecycle hook of termination, which Quell completes when the instance has drained").Or("none"),
		setting.Opt("beside_policies", setting.Bool(&s.BesidePolicies),
			"whether instances are started and stopped although a scaling policy of AWS changes the group, too"),
		setting.Opt("stop_protected", setting.Bool(&s.StopProtected), "whether instances with scale-in protection are stopped, too"),
		setting.Opt("join_within", setting.Duration(&s.JoinWithin).Between(time.Minute, 30*24*time.Hour),
			"how long after the start of its instance an agent may join with the instance identity document").Or("none may"),
		setting.Opt("identity_certificate", setting.Text(&s.Certificate),
			"file with the RSA-2048 certificate by which AWS signs these documents in the region").Or("the one that AWS published for it"),
		setting.Opt("every", setting.Duration(&s.Every).Between(time.Second, time.Minute), "how often AWS is asked"),
		setting.Opt("endpoint", setting.Text(&s.Endpoint).Then(isURL), "address of the services, for tests").Or("those of the region"),
	}
}

func isURL(text string) string {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Sprintf("must be an address as in http://127.0.0.1:5000, is %q", setting.Shorten(text))
	}
	return ""
}

// Check notes whether Quell only advises. Every key stands for itself.
func (s *Settings) Check(_ *setting.Decoder, service quell.Service) {
	s.advises = service.Mode == quell.Advise
}

// Files are the paths that are relative to the configuration.
func (s *Settings) Files(string) []*string { return []*string{&s.Certificate} }

// Proof is the kind of proof with which agents may join, "" for none.
func (s *Settings) Proof() string {
	if s.JoinWithin == 0 {
		return ""
	}
	return Proof
}

// Ask asks AWS for everything that the configuration needs there.
func (s *Settings) Ask(ctx context.Context) []scaler.Answer {
	return ask(ctx, Options{Settings: *s, limit: requestWait})
}

// New makes the driver.
func (s *Settings) New(in scaler.Env) (scaler.Driver, error) {
	return New(Options{Settings: *s, Logger: in.Logger}), nil
}
