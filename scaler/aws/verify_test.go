package aws

import (
	"bytes"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/scaler/aws/standin"
)

func TestVerify(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	end := time.Date(2200, 1, 1, 12, 0, 0, 0, time.UTC)
	aws, thief, short := standin.NewSigner(t, 2048, end), standin.NewSigner(t, 2048, end), standin.NewSigner(t, 1024, end)
	const account, region = "123456789012", "eu-west-1"
	now := start.Add(time.Minute)
	d := &Driver{opts: Options{Settings: Settings{JoinWithin: time.Hour, Certificate: aws.File}, Now: func() time.Time { return now }}}
	d.now = picture{region: region, machines: map[string]machine{"i-1": {ID: "i-1", Launched: start.Add(-3 * time.Second)}},
		group: types.AutoScalingGroup{
			AutoScalingGroupARN: sdk.String("arn:aws:autoscaling:eu-west-1:123456789012:autoScalingGroup:x:autoScalingGroupName/web"),
			Instances:           []types.Instance{{InstanceId: sdk.String("i-1")}, {InstanceId: sdk.String("i-2")}},
		}}
	good := standin.Document("i-1", account, region, start)
	foreign := standin.Document("i-9", account, region, start)
	earlier := standin.Document("i-1", account, region, start.Add(-30*time.Minute))
	signed, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(aws.Sign(t, good), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	forged := base64.StdEncoding.EncodeToString(bytes.Replace(signed, []byte("i-1"), []byte("i-2"), 1))
	for name, tc := range map[string]struct {
		instance, proof string
		after           time.Duration // since the start
		again           bool
		refusal         string
	}{
		"its own":                {"i-1", aws.Sign(t, good), time.Minute, false, ""},
		"another's":              {"i-2", aws.Sign(t, good), time.Minute, false, `is that of "i-1"`},
		"signed by another":      {"i-1", thief.Sign(t, good), time.Minute, false, "was not signed by AWS"},
		"altered":                {"i-2", forged, time.Minute, false, "was not signed by AWS"},
		"too late":               {"i-1", aws.Sign(t, good), 61 * time.Minute, false, "started 1h1m0s ago, and may join for 1h0m0s"},
		"again, later":           {"i-1", aws.Sign(t, good), 20 * time.Hour, true, ""},
		"from the future":        {"i-1", aws.Sign(t, good), -6 * time.Minute, true, "yet to come"},
		"of an earlier start":    {"i-1", aws.Sign(t, earlier), 0, false, "earlier start"},
		"without a time":         {"i-1", aws.Sign(t, `{"instanceId":"i-1","accountId":"123456789012","region":"eu-west-1"}`), 0, false, "earlier start"},
		"of another account":     {"i-1", aws.Sign(t, standin.Document("i-1", "1", region, start)), 0, false, `account "1"`},
		"of another region":      {"i-1", aws.Sign(t, standin.Document("i-1", account, "us-east-1", start)), 0, false, `region "us-east-1"`},
		"of another group":       {"i-9", aws.Sign(t, foreign), 0, false, "the group has no instance i-9"},
		"not in base64":          {"i-1", good, 0, false, "no instance identity document that is signed"},
		"cut off":                {"i-1", aws.Sign(t, good)[:400], 0, false, "no instance identity document that is signed"},
		"too long":               {"i-1", aws.Sign(t, good+strings.Repeat(" ", 8000)), 0, false, "no instance identity document that is signed"},
		"a document that is bad": {"i-1", aws.Sign(t, "[]"), 0, false, "cannot be read"},
		"nothing":                {"i-1", "", 0, false, "no instance identity document that is signed"},
	} {
		now = start.Add(tc.after)
		_, err := d.Verify(t.Context(), tc.instance, tc.proof, tc.again)
		var unproved *scaler.Unproved
		switch {
		case tc.refusal == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.refusal != "" && (!errors.As(err, &unproved) || !strings.Contains(err.Error(), tc.refusal)):
			t.Errorf("%s: %v, wanted a refusal with %q", name, err, tc.refusal)
		}
	}
	// What is wrong on this side is not for the machine.
	for name, tc := range map[string]struct {
		region, file, wants string
		after               time.Duration
	}{
		"a certificate that has ended": {region, aws.File, "ended at 2200-01-01T12:00:00Z", end.Sub(start) + time.Hour},
		"a short key":                  {region, short.File, "no RSA key of 2048 bits", 0},
		"an unknown region":            {"mars-1", "", "no certificate of AWS for the identity documents of region mars-1", 0},
		"no such file":                 {region, aws.File + ".no", "scaler.identity_certificate", 0},
	} {
		now, d.now.region, d.opts.Certificate = start.Add(tc.after), tc.region, tc.file
		_, err := d.Verify(t.Context(), "i-1", aws.Sign(t, good), false)
		var unproved *scaler.Unproved
		if err == nil || errors.As(err, &unproved) || !strings.Contains(err.Error(), tc.wants) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every certificate that AWS published can be used.
func TestPublishedCertificates(t *testing.T) {
	regions := regexp.MustCompile(`(?m)^# ([a-z]+-[a-z-]+-[0-9])$`).FindAllStringSubmatch(published, -1)
	if len(regions) < 30 || len(regions) != strings.Count(published, "BEGIN CERTIFICATE") {
		t.Fatalf("%d regions", len(regions))
	}
	for _, r := range regions {
		c, err := certificateOf(r[1], "")
		if err != nil {
			t.Error(err)
			continue
		}
		if key, ok := c.PublicKey.(*rsa.PublicKey); !ok || key.N.BitLen() != 2048 || !strings.Contains(c.Subject.String(), "O=Amazon") {
			t.Errorf("%s: %v", r[1], c.Subject)
		}
	}
}

// A machine's proof is what its metadata, read with a token of its second version, says of it.
func TestOwnIdentity(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", standin.Metadata(t, "c2ln\nbmVk"))
	proof, err := OwnIdentity(t.Context())
	if err != nil || proof != "c2ln\nbmVk" {
		t.Errorf("%q, %v", proof, err)
	}
}
