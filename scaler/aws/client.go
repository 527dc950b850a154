package aws

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
)

// clients reach AWS. The SDK's client of EC2 alone takes a minute and a half to compile, so its two calls are made here.
type clients struct {
	read, write *autoscaling.Client
	region      string
	ec2         string // address of EC2
	config      sdk.Config
	signer      *v4.Signer
}

// tries limits how often a request is tried.
const tries = 3

// connect loads the SDK's configuration.
func connect(ctx context.Context, o *Options) (*clients, error) {
	load := o.Load
	if load == nil {
		load = func(ctx context.Context) (sdk.Config, error) { return awsconfig.LoadDefaultConfig(ctx) }
	}
	cfg, err := load(ctx)
	if err != nil {
		return nil, fmt.Errorf("loading the configuration of the AWS SDK: %w", err)
	}
	cfg.Logger = logging.Nop{} // errors say what failed; the SDK would write lines of its own form
	cfg.Region = cmp.Or(o.Region, cfg.Region)
	if cfg.Region == "" {
		out, err := imds.NewFromConfig(cfg).GetRegion(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("asking this machine's metadata for its region (scaler.region gives it): %w", err)
		}
		cfg.Region = out.Region
	}
	if o.Endpoint != "" {
		cfg.BaseEndpoint = &o.Endpoint
	}
	address, err := autoscaling.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, autoscaling.EndpointParameters{
		Region: &cfg.Region, Endpoint: cfg.BaseEndpoint,
	})
	if err != nil {
		return nil, fmt.Errorf("the address of AWS in region %s: %w", cfg.Region, err)
	}
	if cfg.BaseEndpoint == nil {
		address.URI.Host = strings.Replace(address.URI.Host, "autoscaling", "ec2", 1)
	}
	return &clients{
		read:   autoscaling.NewFromConfig(cfg, func(o *autoscaling.Options) { o.Retryer = retry.NewAdaptiveMode(limited) }),
		write:  autoscaling.NewFromConfig(cfg, func(o *autoscaling.Options) { o.Retryer = retry.NewAdaptiveMode(limited, onlyRefused) }),
		region: cfg.Region, ec2: address.URI.String(), config: cfg, signer: v4.NewSigner(),
	}, nil
}

func limited(o *retry.AdaptiveModeOptions) {
	o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) { o.MaxAttempts = tries })
}

// onlyRefused makes a write be tried again only if AWS refused it because of the number of requests: one whose answer got lost may have
// been carried out, and carrying it out twice could end an instance too many.
func onlyRefused(o *retry.AdaptiveModeOptions) {
	o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) {
		o.Retryables = []retry.IsErrorRetryable{retry.RetryableErrorCode{Codes: retry.DefaultThrottleErrorCodes}}
	})
}

// machine is an instance as EC2 knows it.
type machine struct {
	ID        string    `xml:"instanceId"`
	Private   string    `xml:"privateIpAddress"`
	Public    string    `xml:"ipAddress"`
	IPv6      string    `xml:"ipv6Address"`
	State     string    `xml:"instanceState>name"`
	Lifecycle string    `xml:"instanceLifecycle"` // "spot", or empty
	Launched  time.Time `xml:"launchTime"`
}

// address returns host:port, "" if the machine has no such address or there is no port.
func (m machine) address(use address, port int) string {
	host := map[address]string{private: m.Private, public: m.Public, ipv6: m.IPv6}[use]
	if host == "" || port == 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// machines returns the instances of a group, as EC2 knows them, by id.
func (c *clients) machines(ctx context.Context, group string) (map[string]machine, error) {
	machines := map[string]machine{}
	for token := ""; ; {
		var page struct {
			Machines []machine `xml:"reservationSet>item>instancesSet>item"`
			Next     string    `xml:"nextToken"`
		}
		form := url.Values{"Filter.1.Name": {"tag:aws:autoscaling:groupName"}, "Filter.1.Value.1": {group}, "MaxResults": {"1000"}}
		if token != "" {
			form.Set("NextToken", token)
		}
		if err := c.query(ctx, "DescribeInstances", form, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Machines {
			machines[m.ID] = m
		}
		if token = page.Next; token == "" {
			return machines, nil
		}
	}
}

// notices returns the ids of the region's spot instances that have been told that they end.
func (c *clients) notices(ctx context.Context) (map[string]bool, error) {
	ids := map[string]bool{}
	for token := ""; ; {
		var page struct {
			IDs  []string `xml:"spotInstanceRequestSet>item>instanceId"`
			Next string   `xml:"nextToken"`
		}
		form := url.Values{"Filter.1.Name": {"status-code"}, "Filter.1.Value.1": {"marked-for-termination"},
			"Filter.1.Value.2": {"marked-for-stop"}, "MaxResults": {"1000"}}
		if token != "" {
			form.Set("NextToken", token)
		}
		if err := c.query(ctx, "DescribeSpotInstanceRequests", form, &page); err != nil {
			return nil, err
		}
		for _, id := range page.IDs {
			ids[id] = true
		}
		if token = page.Next; token == "" {
			return ids, nil
		}
	}
}

// mostAnswer limits an answer's size: a thousand instances take about 5 MB.
const mostAnswer = 64 << 20

// query makes one request to EC2 and reads its answer.
func (c *clients) query(ctx context.Context, action string, form url.Values, answer any) error {
	form.Set("Action", action)
	form.Set("Version", "2016-11-15")
	body := form.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.ec2, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	credentials, err := c.config.Credentials.Retrieve(ctx)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(body))
	if err := c.signer.SignHTTP(ctx, credentials, r, hex.EncodeToString(sum[:]), "ec2", c.region, time.Now()); err != nil {
		return err
	}
	client := c.config.HTTPClient
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return refusal(resp.Status, data)
	}
	if err := xml.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("the answer of EC2 to %s: %w", action, err)
	}
	return nil
}

// refusal is EC2's error as the SDK has it.
func refusal(status string, data []byte) error {
	var parsed struct {
		Code    string `xml:"Errors>Error>Code"`
		Message string `xml:"Errors>Error>Message"`
	}
	if err := xml.Unmarshal(data, &parsed); err != nil || parsed.Code == "" {
		return fmt.Errorf("EC2 answers %s", status)
	}
	return &smithy.GenericAPIError{Code: parsed.Code, Message: parsed.Message}
}
