package aws

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	_ "embed" // for AWS's certificates
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/smallstep/pkcs7"

	"github.com/quellhq/quell/scaler"
)

// Proof is the kind of proof that instances of EC2 have: their instance identity document, signed by AWS with a key of 2048 bits. It is the
// text that the instance's metadata has for that: PKCS #7 in base64, with the document in it. AWS also signs with keys of 1024 bits, and by
// DSA with SHA-1; Quell does not accept these.
const Proof = "aws"

// identity is what Quell reads in a document.
type identity struct {
	Instance string    `json:"instanceId"`
	Account  string    `json:"accountId"`
	Region   string    `json:"region"`
	Started  time.Time `json:"pendingTime"`
}

// OwnIdentity is the proof of the machine that this runs on, from its metadata (version 2).
func OwnIdentity(ctx context.Context) (string, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return "", err
	}
	out, err := imds.NewFromConfig(cfg).GetDynamicData(ctx, &imds.GetDynamicDataInput{Path: "instance-identity/rsa2048"})
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Content.Close() }()
	text, err := io.ReadAll(io.LimitReader(out.Content, mostProof))
	return string(text), err
}

// mostProof limits the size of a proof, in bytes.
const mostProof = 8 << 10

//go:embed certificates.pem
var published string

// certificateOf returns the certificate by which AWS signs the documents of a region.
func certificateOf(region, file string) (*x509.Certificate, error) {
	text, help := "", "scaler.identity_certificate names a file with it"
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("scaler.identity_certificate: %w", err)
		}
		text, help = string(data), "scaler.identity_certificate"
	} else if _, after, ok := strings.Cut(published, "# "+region+"\n"); ok {
		text = after
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, fmt.Errorf("there is no certificate of AWS for the identity documents of region %s: %s", region, help)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the certificate of AWS for the identity documents of region %s (%s): %w", region, help, err)
	}
	return c, nil
}

// leastKey is the size of AWS's keys, in bits.
const leastKey = 2048

// read checks the signature of a proof, and returns what its document says.
func read(proof string, c *x509.Certificate, now time.Time) (identity, error) {
	if key, ok := c.PublicKey.(*rsa.PublicKey); !ok || key.N.BitLen() < leastKey {
		return identity{}, fmt.Errorf("the certificate of AWS for identity documents has no RSA key of %d bits: scaler.identity_certificate "+
			"names a file with AWS's RSA-2048 certificate", leastKey)
	}
	if now.After(c.NotAfter) {
		return identity{}, fmt.Errorf("the certificate of AWS for identity documents ended at %s: scaler.identity_certificate names a file with "+
			"a newer one", c.NotAfter.Format(time.RFC3339))
	}
	der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(proof), ""))
	if err != nil || len(proof) > mostProof {
		return identity{}, scaler.Unprovedf("its proof is no instance identity document that is signed with RSA-2048")
	}
	signed, err := pkcs7.Parse(der)
	if err != nil {
		return identity{}, scaler.Unprovedf("its proof is no instance identity document that is signed with RSA-2048: %v", err)
	}
	signed.Certificates = []*x509.Certificate{c} // a certificate within the proof proves nothing
	if err := signed.Verify(); err != nil {
		return identity{}, scaler.Unprovedf("its identity document was not signed by AWS, or not in this region: %v", err)
	}
	var id identity
	if err := json.Unmarshal(signed.Content, &id); err != nil {
		return identity{}, scaler.Unprovedf("its identity document cannot be read: %v", err)
	}
	return id, nil
}

// skew is how far a document's time may be from that of EC2, and from this machine's clock.
const skew = 5 * time.Minute

// Verify returns an error if an identity document does not show that its holder is an instance of the group. A document has no end, and
// every process on the instance can read it. So an instance that joins for the first time must have started within join_within.
func (d *Driver) Verify(_ context.Context, instance, proof string, again bool) (machine string, err error) {
	d.mu.Lock()
	p := d.now
	d.mu.Unlock()
	c, err := certificateOf(p.region, d.opts.Certificate)
	if err != nil {
		return "", err
	}
	now := d.opts.Now()
	id, err := read(proof, c, now)
	if err != nil {
		return "", err
	}
	if err := id.isOf(p, instance); err != nil {
		return "", err
	}
	switch age := now.Sub(id.Started); {
	case age < -skew:
		return "", scaler.Unprovedf("its instance started at %s, which is yet to come: compare the clocks", id.Started.Format(time.RFC3339))
	case age > d.opts.JoinWithin && !again:
		return "", scaler.Unprovedf("its instance started %v ago, and may join for %v (scaler.join_within)", age.Round(time.Second),
			d.opts.JoinWithin)
	}
	return "", nil
}

// isOf returns why a document is not that of an instance of the group, nil if it is.
func (id identity) isOf(p picture, instance string) error {
	switch account := accountOf(p.group); {
	case id.Instance != instance:
		return scaler.Unprovedf("its identity document is that of %q", id.Instance)
	case id.Region != p.region:
		return scaler.Unprovedf("its identity document is of region %q, the group is in %s", id.Region, p.region)
	case account != "" && id.Account != account:
		return scaler.Unprovedf("its identity document is of account %q, the group is of %s", id.Account, account)
	case !slices.ContainsFunc(p.group.Instances, func(in types.Instance) bool { return sdk.ToString(in.InstanceId) == instance }):
		return scaler.Unprovedf("the group has no instance %s", instance)
	}
	if m, known := p.machines[instance]; known && !m.Launched.IsZero() && id.Started.Sub(m.Launched).Abs() > skew {
		return scaler.Unprovedf("its identity document is of a start at %s, and EC2 says %s: it is of an earlier start",
			id.Started.Format(time.RFC3339), m.Launched.Format(time.RFC3339))
	}
	return nil
}

// accountOf is the account of a group, "" if its name does not tell.
func accountOf(g types.AutoScalingGroup) string {
	parts := strings.Split(sdk.ToString(g.AutoScalingGroupARN), ":") // arn:aws:autoscaling:REGION:ACCOUNT:...
	if len(parts) < 5 {
		return ""
	}
	return parts[4]
}
