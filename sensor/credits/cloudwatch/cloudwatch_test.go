package cloudwatch

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/encoding/cbor"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/sensor/credits"
)

// point is a data point of a metric.
type point struct {
	ago   time.Duration // before the service's clock
	value float64
}

// double is a CloudWatch on this machine. It speaks the protocol of the SDK, RPC v2 with CBOR.
type double struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	clock   time.Time // the service's
	points  map[string][]point
	refuse  string // code of the error that answers everything; "": none
	asked   int
	queries []cbor.Map
}

func startDouble(t *testing.T) *double {
	d := &double{t: t, clock: begin, points: map[string][]point{}}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

var begin = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	w.Header().Set("Date", d.clock.Format(http.TimeFormat))
	w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
	w.Header().Set("Content-Type", "application/cbor")
	if !strings.HasSuffix(r.URL.Path, "/operation/GetMetricStatistics") || r.Header.Get("Authorization") == "" {
		d.t.Errorf("%s %s, signed by %q", r.Method, r.URL, r.Header.Get("Authorization"))
	}
	if d.refuse != "" {
		w.Header().Set("X-Amzn-Query-Error", d.refuse+";Sender")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(cbor.Encode(cbor.Map{"__type": cbor.String("com.amazonaws.cloudwatch#" + d.refuse), "message": cbor.String("no")}))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Error(err)
	}
	query, err := cbor.Decode(body)
	if err != nil {
		d.t.Error(err)
		return
	}
	asked := query.(cbor.Map)
	d.queries = append(d.queries, asked)
	var list cbor.List
	for _, p := range d.points[string(asked["MetricName"].(cbor.String))] {
		at := d.clock.Add(-p.ago)
		list = append(list, cbor.Map{"Average": cbor.Float64(p.value), "Timestamp": &cbor.Tag{ID: 1, Value: cbor.Float64(at.Unix())}})
	}
	_, _ = w.Write(cbor.Encode(cbor.Map{"Label": asked["MetricName"], "Datapoints": list}))
}

// set changes the double while nothing is asked.
func (d *double) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// watcher returns a watcher of the double whose own clock is ahead of the service's by an hour.
func (d *double) watcher(change func(*Options)) *Watcher {
	o := Options{Settings: Settings{ID: "i-1", Region: "eu-west-1", Every: 5 * time.Minute, Endpoint: d.URL}, Retries: 1,
		Now: func() time.Time { return here },
		Load: func(context.Context) (aws.Config, error) {
			return aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
			})}, nil
		}}
	if change != nil {
		change(&o)
	}
	return New(o)
}

var here = begin.Add(time.Hour)

func TestTheNewestBalanceIsShown(t *testing.T) {
	d := startDouble(t)
	d.points["CPUCreditBalance"] = []point{{12 * time.Minute, 40}, {2 * time.Minute, 28.5}, {7 * time.Minute, 33}}
	d.points["BurstBalance"] = []point{{3 * time.Minute, 50}}
	w := d.watcher(func(o *Options) { o.Volume = "vol-1" })
	if err := w.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := w.Shown()
	want := map[quell.Resource]credits.Balance{
		quell.CPU: {Credits: 28.5, At: here.Add(-2 * time.Minute)}, quell.Disk: {Credits: 2.7e6, At: here.Add(-3 * time.Minute)},
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v by this machine's clock", got, err, want)
	}
	of := d.queries[0]["Dimensions"].(cbor.List)[0].(cbor.Map)
	if of["Name"] != cbor.String("InstanceId") || of["Value"] != cbor.String("i-1") || d.queries[0]["Namespace"] != cbor.String("AWS/EC2") {
		t.Errorf("asked for %v", d.queries[0])
	}
}

func TestWhatCloudWatchMayAnswer(t *testing.T) {
	for _, tc := range []struct {
		why    string
		points []point
		refuse string
		shown  *float64
		err    string
		lack   bool
	}{
		{"absent", nil, "", nil, "has no CPUCreditBalance of i-1", true},
		{"delayed by 20 minutes", []point{{20 * time.Minute, 3}}, "", aws.Float64(3), "", false},
		{"empty", []point{{time.Minute, 0}}, "", aws.Float64(0), "", false},
		{"negative: the one before counts", []point{{time.Minute, -3}, {6 * time.Minute, 4}}, "", aws.Float64(4), "cannot be true: -3 at", false},
		{"not a number", []point{{time.Minute, math.NaN()}}, "", nil, "cannot be true", false},
		{"infinite", []point{{time.Minute, math.Inf(1)}}, "", nil, "cannot be true", false},
		{"absurdly many", []point{{time.Minute, 1e300}}, "", nil, "cannot be true", false},
		{"from the future", []point{{-time.Hour, 5}}, "", nil, "cannot be true", false},
		{"a little ahead", []point{{-time.Minute, 5}}, "", aws.Float64(5), "", false},
		{"throttled", nil, "ThrottlingException", nil, "too many requests", false},
		{"not allowed", nil, "AccessDenied", nil, "allow this machine's role cloudwatch:GetMetricStatistics", false},
	} {
		d := startDouble(t)
		d.points["CPUCreditBalance"], d.refuse = tc.points, tc.refuse
		w := d.watcher(nil)
		err := w.ask(t.Context())
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v", tc.why, err)
		}
		if lack := (*sensor.Unavailable)(nil); errors.As(err, &lack) != tc.lack {
			t.Errorf("%s: a failure instead of something that is not there, or the reverse: %v", tc.why, err)
		}
		shown, _ := w.Shown()
		b, ok := shown[quell.CPU]
		if ok != (tc.shown != nil) || ok && b.Credits != *tc.shown || b.At.After(here) {
			t.Errorf("%s: shows %v", tc.why, shown)
		}
	}
}

// A late answer with an old balance does not replace a newer one.
func TestAnOlderBalanceIsIgnored(t *testing.T) {
	d := startDouble(t)
	w := d.watcher(nil)
	for _, p := range []point{{2 * time.Minute, 10}, {12 * time.Minute, 99}} {
		d.set(func() { d.points["CPUCreditBalance"] = []point{p} })
		if err := w.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if shown, _ := w.Shown(); shown[quell.CPU].Credits != 10 {
		t.Errorf("shows %v", shown)
	}
}

// The volume's balance is shown although that of the processors is not.
func TestOneMetricDoesNotAffectTheOther(t *testing.T) {
	d := startDouble(t)
	d.points["BurstBalance"] = []point{{time.Minute, 100}}
	w := d.watcher(func(o *Options) { o.Volume = "vol-1" })
	if err := w.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "no CPUCreditBalance") {
		t.Errorf("%v", err)
	}
	if shown, _ := w.Shown(); len(shown) != 1 || shown[quell.Disk].Credits != 5.4e6 {
		t.Errorf("shows %v", shown)
	}
}

// Run asks at once, keeps the failure, and ends with its context.
func TestRunKeepsWhatFailed(t *testing.T) {
	d := startDouble(t)
	d.refuse = "Throttling"
	w := d.watcher(nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for err := error(nil); err == nil; _, err = w.Shown() {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := w.Shown(); !strings.Contains(err.Error(), "too many requests") || d.asked != 1 {
		t.Errorf("asked %d times: %v", d.asked, err)
	}
}

func TestAMachineThatIsNowhere(t *testing.T) {
	d := startDouble(t)
	w := d.watcher(func(o *Options) { o.ID = "" })
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	if err := w.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "agent.credits.id") || d.asked != 0 {
		t.Errorf("asked %d times: %v", d.asked, err)
	}
}
