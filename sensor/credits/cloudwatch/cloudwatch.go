// Package cloudwatch reads balances of credits from Amazon CloudWatch: the CPUCreditBalance of an EC2 instance and the BurstBalance of a
// gp2 volume. The machine's role needs the permission cloudwatch:GetMetricStatistics.
package cloudwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/smithy-go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/sensor/credits"
)

// Options configure a watcher.
type Options struct {
	Settings
	Retries int              // attempts of one request; 0: as usual for the SDK
	Now     func() time.Time // nil means time.Now
	// Load returns the SDK's configuration; nil means that of the environment, the user's files and the machine's role.
	Load func(ctx context.Context) (aws.Config, error)
}

// Watcher asks CloudWatch for balances.
type Watcher struct {
	opts    Options
	client  *cloudwatch.Client // nil until the configuration is loaded
	metrics []metric

	mu    sync.Mutex // guards shown and err
	shown map[quell.Resource]credits.Balance
	err   error
}

var _ credits.Driver = (*Watcher)(nil)

// metric is one of CloudWatch's metrics.
type metric struct {
	resource                       quell.Resource
	namespace, name, dimension, of string
	whole                          float64 // credits of a balance of 100%; 0: the metric is a number of credits
}

// New returns a watcher. Nothing is asked before Run.
func New(o Options) *Watcher {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Load == nil {
		o.Load = func(ctx context.Context) (aws.Config, error) { return awsconfig.LoadDefaultConfig(ctx) }
	}
	return &Watcher{opts: o, shown: map[quell.Resource]credits.Balance{}}
}

// Shown implements credits.Driver.
func (w *Watcher) Shown() (map[quell.Resource]credits.Balance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.shown), w.err
}

// mostWaits is by how much failures may lengthen the time between requests.
const mostWaits = 8

// Run implements credits.Driver. After failures it waits longer, so that it does not add to what makes CloudWatch refuse requests.
func (w *Watcher) Run(ctx context.Context) error {
	wait := w.opts.Every
	for {
		err := w.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		lack := (*sensor.Unavailable)(nil)
		if err == nil || errors.As(err, &lack) {
			wait = w.opts.Every
		} else {
			wait = min(2*wait, mostWaits*w.opts.Every)
		}
		if !tick.Sleep(ctx, wait) {
			return nil
		}
	}
}

// ask asks for each metric once. What fails does not affect the others. Metrics that do not exist are only an error if nothing failed.
func (w *Watcher) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.opts.Every)
	defer cancel()
	if w.client == nil {
		if err := w.connect(ctx); err != nil {
			return err
		}
	}
	var failed, lacking []error
	for _, m := range w.metrics {
		b, err := w.read(ctx, m)
		if b != nil {
			w.show(m.resource, *b)
		}
		if _, ok := errors.AsType[*sensor.Unavailable](err); ok {
			lacking = append(lacking, err)
		} else {
			failed = append(failed, err)
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return errors.Join(lacking...)
}

// show keeps a balance unless a newer one is known.
func (w *Watcher) show(r quell.Resource, b credits.Balance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, ok := w.shown[r]; !ok || b.At.After(before.At) {
		w.shown[r] = b
	}
}

// connect finds out which instance this is, and in which region.
func (w *Watcher) connect(ctx context.Context) error {
	cfg, err := w.opts.Load(ctx)
	if err != nil {
		return fmt.Errorf("loading the configuration of the AWS SDK: %w", err)
	}
	id := w.opts.ID
	cfg.Region = cmp.Or(w.opts.Region, cfg.Region)
	if id == "" || cfg.Region == "" {
		this, err := imds.NewFromConfig(cfg).GetInstanceIdentityDocument(ctx, nil)
		if err != nil {
			return fmt.Errorf("asking this machine's metadata for its id and region (agent.credits.id and agent.credits.region give them): %w", err)
		}
		id, cfg.Region = cmp.Or(id, this.InstanceID), cmp.Or(cfg.Region, this.Region)
	}
	w.metrics = []metric{{resource: quell.CPU, namespace: "AWS/EC2", name: "CPUCreditBalance", dimension: "InstanceId", of: id}}
	if w.opts.Volume != "" {
		gp2, err := credit.Shipped().Find("gp2")
		if err != nil {
			return err
		}
		w.metrics = append(w.metrics, metric{resource: quell.Disk, namespace: "AWS/EBS", name: "BurstBalance", dimension: "VolumeId",
			of: w.opts.Volume, whole: gp2.Disk.Bucket(0).Cap})
	}
	w.client = cloudwatch.NewFromConfig(cfg, func(o *cloudwatch.Options) {
		if w.opts.Endpoint != "" {
			o.BaseEndpoint = &w.opts.Endpoint
		}
		if w.opts.Retries > 0 {
			o.RetryMaxAttempts = w.opts.Retries
		}
	})
	return nil
}

// Times of metrics.
const (
	back    = time.Hour       // how old a balance may be
	minutes = 60              // seconds of a period of statistics: balances have the precision of one minute
	ahead   = 5 * time.Minute // how far the times of metrics may be ahead of the service's own clock
)

// read returns the newest balance that can be believed; nil if there is none.
func (w *Watcher) read(ctx context.Context, m metric) (*credits.Balance, error) {
	now := w.opts.Now()
	out, err := w.client.GetMetricStatistics(ctx, &cloudwatch.GetMetricStatisticsInput{
		Namespace: &m.namespace, MetricName: &m.name, Dimensions: []types.Dimension{{Name: &m.dimension, Value: &m.of}},
		StartTime: aws.Time(now.Add(-back)), EndTime: aws.Time(now.Add(ahead)), Period: aws.Int32(minutes),
		Statistics: []types.Statistic{types.StatisticAverage},
	})
	if err != nil {
		return nil, m.explain(err)
	}
	received := w.opts.Now()
	clock, ok := awsmiddleware.GetServerTime(out.ResultMetadata) // the service's, because this machine's clock may be wrong
	if !ok {
		clock = received
	}
	slices.SortFunc(out.Datapoints, func(a, b types.Datapoint) int { return aws.ToTime(b.Timestamp).Compare(aws.ToTime(a.Timestamp)) })
	for i := range out.Datapoints {
		amount, stamp, sound := m.amount(&out.Datapoints[i], clock)
		if !sound {
			err = errors.Join(err, fmt.Errorf("CloudWatch shows a %s of %s that cannot be true: %s", m.name, m.of, describe(&out.Datapoints[i])))
			continue
		}
		return &credits.Balance{Credits: amount, At: received.Add(-max(0, clock.Sub(stamp)))}, err
	}
	if err != nil {
		return nil, err
	}
	return nil, &sensor.Unavailable{Why: fmt.Sprintf("CloudWatch has no %s of %s", m.name, m.of),
		Do: "new instances have one after some minutes; instances that are not burstable, and volumes that are no gp2 volumes, have none"}
}

// amount returns the credits of a data point and when they were there. sound is false if the data point cannot be true.
func (m metric) amount(p *types.Datapoint, clock time.Time) (amount float64, stamp time.Time, sound bool) {
	const most = 1e12
	if p.Average == nil || p.Timestamp == nil {
		return 0, stamp, false
	}
	amount = *p.Average
	if m.whole > 0 {
		if amount > 100 {
			return 0, stamp, false
		}
		amount *= m.whole / 100
	}
	sound = amount >= 0 && amount <= most && !math.IsNaN(amount) && !p.Timestamp.After(clock.Add(ahead))
	return amount, *p.Timestamp, sound
}

// describe prints a data point for a person.
func describe(p *types.Datapoint) string {
	if p.Average == nil || p.Timestamp == nil {
		return "a data point without value or time"
	}
	return fmt.Sprintf("%v at %s", *p.Average, p.Timestamp.UTC().Format(time.RFC3339))
}

// explain says what to do about an error.
func (m metric) explain(err error) error {
	what, do := "asking CloudWatch for "+m.name+" of "+m.of, ""
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		_, throttled := retry.DefaultThrottleErrorCodes[api.ErrorCode()]
		switch {
		case throttled:
			do = " (there are too many requests: the time between them is lengthened; a longer agent.credits.every helps)"
		case api.ErrorCode() == "AccessDenied" || api.ErrorCode() == "AccessDeniedException":
			do = " (allow this machine's role cloudwatch:GetMetricStatistics)"
		}
	}
	return fmt.Errorf("%s%s: %w", what, do, err)
}
