package cloudwatch

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/quellhq/quell/sensor/credits"
	"github.com/quellhq/quell/setting"
)

// Kind reads balances from Amazon CloudWatch.
var Kind = credits.Kind{Name: "cloudwatch", About: "Amazon CloudWatch",
	Defaults: func() credits.Settings { return &Settings{Every: 5 * time.Minute} }}

// Settings say which metrics are read.
type Settings struct {
	ID       string // of the EC2 instance; "": this one
	Region   string // "": that of the environment, else of this instance
	Volume   string // id of a gp2 volume; "": none
	Every    time.Duration
	Endpoint string // address of the service; "": that of the region
}

var _ credits.Settings = (*Settings)(nil)

// Keys is the table of their keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Opt("id", setting.Text(&s.ID).Then(startsWith("i-")), "id of the EC2 instance, as in i-0123456789abcdef0").
			Or("from the instance's metadata"),
		setting.Opt("region", setting.Ident(&s.Region),
			"region of the instance, as in eu-west-1").Or("from AWS_REGION or the instance's metadata"),
		setting.Opt("volume", setting.Text(&s.Volume).Then(startsWith("vol-")),
			"id of the gp2 volume that the service uses; its burst balance is read too").Or("none"),
		setting.Opt("every", setting.Duration(&s.Every).Between(time.Minute, 30*time.Minute),
			"how often to ask; CloudWatch renews balances every five minutes"),
		setting.Opt("endpoint", setting.Text(&s.Endpoint).Then(isURL), "address of CloudWatch, such as that of a VPC endpoint").
			Or("that of the region"),
	}
}

// startsWith returns a check of an id.
func startsWith(prefix string) func(string) string {
	return func(id string) string {
		if !strings.HasPrefix(id, prefix) {
			return fmt.Sprintf("must be an id that begins with %s, is %q", prefix, setting.Shorten(id))
		}
		return ""
	}
}

func isURL(text string) string {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Sprintf("must be an address as in https://monitoring.eu-west-1.amazonaws.com, is %q", setting.Shorten(text))
	}
	return ""
}

// New makes the driver.
func (s *Settings) New() (credits.Driver, error) { return New(Options{Settings: *s}), nil }
