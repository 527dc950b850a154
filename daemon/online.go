package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/scaler"
)

// Answer is what one part of a running service answered to a check.
type Answer struct {
	Asked string
	Got   string
	OK    bool
}

// askWait limits how long one request may take.
const askWait = 3 * time.Second

// Online checks every part of a running service that its configuration names: bus, controller, balancers, the scaler's platform, the
// instances' health and their probe servers. It changes nothing. Where only agents run, it does not ask what they need not reach.
func Online(ctx context.Context, file *config.File) (answers []Answer) {
	var instances []quell.Member
	if agentsOnly(file) {
		answers = []Answer{said("bus "+busOf(file)+": connect", "reachable; agents join it from here with a proof", reach(ctx, busOf(file)))}
	} else {
		var running *controller.Status
		answers, running = askBus(ctx, file)
		more, backends := askBalancers(ctx, file)
		answers, instances = append(append(answers, more...), askLog(ctx, file, running)...), backends
	}
	if platform, ok := file.Scaler.Settings.(interface {
		Ask(context.Context) []scaler.Answer
	}); ok {
		for _, a := range platform.Ask(ctx) {
			answers = append(answers, said(a.Asked, a.Got, a.Err))
		}
	}
	if listed, fixed := file.Scaler.Listed(); fixed {
		instances = listed
	} else if !file.Scaler.Changes() {
		listed, err := askList(ctx, file)
		answers = append(answers, said("list of instances",
			fmt.Sprintf("%d instances: %s", len(listed), strings.Join(quell.IDs(listed), ", ")), err))
		instances = listed
	}
	return append(answers, askInstances(ctx, file, instances)...)
}

// agentsOnly returns whether this machine is one of agents: they join with a proof, and people have no credential here.
func agentsOnly(file *config.File) bool {
	id, err := busOptions(file, auth.Operator, string(auth.Operator)).Identify()
	return file.Bus.Proof != "" && (err != nil || len(id.Credential) == 0 && id.Token == "" && file.Bus.TLS.Cert == "")
}

// reach returns why no server of a bus can be reached.
func reach(ctx context.Context, servers string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	for one := range strings.SplitSeq(servers, ",") {
		var at *url.URL
		if at, err = url.Parse(strings.TrimSpace(one)); err != nil {
			continue
		}
		var conn net.Conn
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "4222")))
		if err == nil {
			return conn.Close()
		}
	}
	return err
}

// askList returns the instances of a list that others keep.
func askList(ctx context.Context, file *config.File) ([]quell.Member, error) {
	driver, err := file.Scaler.Settings.New(scaler.Env{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return driver.Members(ctx)
}

// said makes an Answer from a result or an error.
func said(asked, got string, err error) Answer {
	if err != nil {
		return Answer{Asked: asked, Got: err.Error()}
	}
	return Answer{Asked: asked, Got: got, OK: true}
}

// logWait is how long a request is awaited in a balancer's log, and logPeriod how often the log is compared with the balancer's counts.
const logWait, logPeriod = 10 * time.Second, time.Second

// askLog checks whether the balancer's log measures all requests. If a controller runs, it tells; otherwise the log is read for a while.
func askLog(ctx context.Context, file *config.File, running *controller.Status) []Answer {
	b, ok := file.Balancer.Settings.(interface {
		LogAt() string
		AwaitLog(context.Context, balancer.Service, time.Duration) (string, error)
	})
	if !ok || b.LogAt() == "" {
		return nil
	}
	asked := "log at " + b.LogAt() + ": requests"
	if running != nil {
		var err error
		if problem := running.LastFailure["measure"]; problem != "" {
			err = errors.New(problem)
		}
		return []Answer{said(asked, "the controller measures all of them", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, logWait)
	defer cancel()
	got, err := b.AwaitLog(ctx, serviceOf(file, slog.New(slog.DiscardHandler)), logPeriod)
	return []Answer{said(asked, got, err)}
}

// askBus also returns the controller's status, nil if it did not answer.
func askBus(ctx context.Context, file *config.File) ([]Answer, *controller.Status) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	connecting := "bus " + busOf(file) + ": connect"
	conn, err := Connect(file)
	if err != nil {
		return []Answer{said(connecting, "", err)}, nil
	}
	defer conn.Close()
	if !conn.Connected() {
		return []Answer{said(connecting, "", errors.New("nobody answers there; the controller runs this bus unless bus.url is set"))}, nil
	}
	s, err := controller.Ask(ctx, conn, file.Service.Name)
	state := "no decision yet"
	if !s.At.IsZero() {
		state = "last decision at " + s.At.UTC().Format(time.RFC3339)
	}
	answers := []Answer{
		said(connecting, "connected", nil),
		said("controller of "+file.Service.Name+": status", fmt.Sprintf("%d instance(s), %s", len(s.Instances), state), err),
	}
	if err != nil {
		return answers, nil
	}
	return answers, &s
}

// askBalancers asks the balancers for the backends in force, and returns the backends that are instances.
func askBalancers(ctx context.Context, file *config.File) (answers []Answer, instances []quell.Member) {
	b, ok := file.Balancer.Settings.(interface {
		Parts(balancer.Service) []balancer.Part
	})
	if !ok {
		return nil, nil
	}
	members, _ := file.Scaler.Listed()
	for _, part := range b.Parts(serviceOf(file, slog.New(slog.DiscardHandler))) {
		states, err := askPart(ctx, part, members)
		answers = append(answers, said(part.About, backendsText(states), err))
		for _, s := range states {
			if !slices.ContainsFunc(instances, func(m quell.Member) bool { return m.ID == s.ID }) && s.Address != "" {
				instances = append(instances, quell.Member{ID: s.ID, Address: s.Address, Probe: s.Probe})
			}
		}
	}
	return answers, instances
}

// askPart asks one process for its backends. It returns an error if it has none for the listed instances.
func askPart(ctx context.Context, part balancer.Part, members []quell.Member) ([]quell.BackendState, error) {
	driver, err := part.Open()
	if err != nil {
		return nil, err
	}
	if d, ok := driver.(interface{ Close() }); ok {
		defer d.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	states, err := driver.State(ctx)
	if d, ok := driver.(interface{ Lacks([]quell.Member) error }); ok && err == nil {
		err = d.Lacks(members)
	}
	return states, err
}

func backendsText(states []quell.BackendState) string {
	parts := make([]string, len(states))
	for i, s := range states {
		switch {
		case s.Draining:
			parts[i] = s.ID + " draining"
		case s.Healthy:
			parts[i] = s.ID + " healthy"
		case s.Health != "":
			parts[i] = s.ID + " unhealthy (" + s.Health + ")"
		default:
			parts[i] = s.ID + " unhealthy"
		}
	}
	if len(parts) == 0 {
		return "no backends"
	}
	return strings.Join(parts, ", ")
}

// askInstances checks all instances at once: their health and a few probes.
func askInstances(ctx context.Context, file *config.File, instances []quell.Member) []Answer {
	answers := make([][]Answer, len(instances))
	var all sync.WaitGroup
	for i, m := range instances {
		all.Go(func() {
			answers[i] = append(answers[i], askHealth(ctx, file, m))
			if m.Probe != "" {
				answers[i] = append(answers[i], askProbe(ctx, file, m))
			}
		})
	}
	all.Wait()
	return slices.Concat(answers...)
}

// askHealth checks an instance as the balancer does. If Quell does not know how the balancer checks, it only connects to the
// instance.
func askHealth(ctx context.Context, file *config.File, m quell.Member) Answer {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	asking := fmt.Sprintf("instance %s at %s: ", m.ID, m.Address)
	b, ok := file.Balancer.Settings.(interface {
		CheckHealth(ctx context.Context, address string) (asked string, err error)
	})
	if ok {
		asked, err := b.CheckHealth(ctx, m.Address)
		return said(asking+asked, "well", err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", m.Address)
	if err == nil {
		err = conn.Close()
	}
	return said(asking+"connect", "connected", err)
}

// askProbe sends a few small probes.
func askProbe(ctx context.Context, file *config.File, m quell.Member) Answer {
	const few, small, within = 8, 1000, 400 * time.Millisecond
	asked := fmt.Sprintf("probe server of %s at %s: %d probes", m.ID, m.Probe, few)
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	token, err := config.Token(file.Probe.Token, file.Probe.TokenFile)
	if err != nil {
		return said(asked, "", err)
	}
	prober, err := probe.NewProber(probe.Options{
		Service: file.Service.Name, Sender: "check", Period: within, Count: few, Size: small, Token: token, Timeout: within,
	})
	if err != nil {
		return said(asked, "", err)
	}
	stats, _, err := prober.Collect(ctx, probe.Target{Instance: m.ID, Address: m.Probe}, within)
	return said(asked, fmt.Sprintf("answered, mean %.1f ms", stats.MeanMS), err)
}
