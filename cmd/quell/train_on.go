package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/terminal"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/redline"
	"github.com/quellhq/quell/train"
)

// onMachine is a training on an instance of a running service, which is out of rotation meanwhile.
type onMachine struct {
	instance string
	urls     []string
	rate     float64 // requests per second that use the resource fully; 0: to be found out
	force    bool
	yes      bool
	limit    time.Duration
	patience time.Duration // for open requests

	cmd   *cobra.Command
	file  *config.File
	conn  *bus.Conn
	lasts time.Duration // of each part: the instance is put back after it if none follows
}

// mostRate is the largest number of requests per second that a command can be told to send.
const mostRate = 1e6

func (o *onMachine) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.instance, "on", "", "train on this instance of the running service, out of rotation; its agent needs agent.training")
	f.StringArrayVar(&o.urls, "url", nil, "with --on: path of the service that training requests, as /index.html; may be given several times")
	f.Float64Var(&o.rate, "rate", 0, "with --on: requests per second that use the resource fully; default: it is found out first")
	f.BoolVar(&o.force, "force", false, "with --on: do it even if it is not known what the other instances can take")
	f.BoolVar(&o.yes, "yes", false, "with --on: do not ask before the instance is taken out of rotation")
	durationFlag(f, &o.limit, "limit", time.Hour, "with --on: the longest time that the instance may be out of rotation")
	durationFlag(f, &o.patience, "timeout", 5*time.Minute, "with --on: how long to wait for its open requests")
}

// given returns whether a flag that needs --on was given.
func (o *onMachine) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"url", "rate", "force", "yes", "limit", "timeout", "service"}, func(name string) bool {
		return cmd.Flags().Changed(name)
	})
}

// run trains on the instance, and puts it back however that ends.
func (o *onMachine) run(cmd *cobra.Command, path, out string, fresh bool) (err error) {
	switch {
	case o.instance == "":
		return userErrorf("--url, --rate, --force, --yes, --limit, --timeout and --service need --on INSTANCE")
	case len(o.urls) == 0:
		return userErrorf("--url: say what the training requests of %s, as in --url /index.html", o.instance)
	case o.limit <= 0:
		return userErrorf("--limit %v: must be above 0; write how long the training may take, as in 30m", o.limit)
	case cmd.Flags().Changed("rate") && !(o.rate > 0 && o.rate <= mostRate):
		return userErrorf("--rate %v: must be above 0, at most %v", o.rate, mostRate)
	}
	o.cmd = cmd
	if err := o.consent(); err != nil {
		return err
	}
	if o.file, err = contact(cmd, path); err != nil {
		return err
	}
	if o.conn, err = daemon.Connect(o.file); err != nil {
		return err
	}
	defer o.conn.Close()
	s, err := controller.Ask(cmd.Context(), o.conn, o.file.Service.Name)
	if err != nil {
		return err
	}
	t, err := o.target(&s)
	if err != nil {
		return err
	}
	o.lasts = redline.Lasts(time.Duration(s.SamplingS * float64(time.Second)))
	_, plan := training(o.file)
	store, err := train.OpenStore(out, o.settings(plan), fresh)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return o.outOfRotation(t, func(ctx context.Context) error { return o.train(ctx, t, plan, store, out) })
}

// consent says what will happen, and asks for a yes unless --yes was given. Nothing is checked or done before it.
func (o *onMachine) consent() error {
	errs := o.cmd.ErrOrStderr()
	fmt.Fprintf(errs, "%s will be out of rotation for up to %v: the controller gives its share to the others. This command sends it\n"+
		"requests, and its agent uses its resources as a neighbour would. It is put back at the end, and after ctrl-C or kill -9.\n",
		o.instance, o.limit)
	if o.yes {
		return nil
	}
	if in, ok := o.cmd.InOrStdin().(*os.File); ok && !term.IsTerminal(int(in.Fd())) {
		return userErrorf("train --on %s: nobody can be asked here; add --yes if this may happen", o.instance)
	}
	fmt.Fprint(errs, "Go on? [y/N] ")
	answer, err := bufio.NewReader(o.cmd.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return errors.New("nothing was done: the answer was not yes")
	}
	return nil
}

// settings are the values on which the rows depend.
func (o *onMachine) settings(plan train.Options) train.Settings {
	s := settings(o.file, plan.Plan)
	maps.DeleteFunc(s, func(name, _ string) bool {
		return slices.Contains([]string{"train.testbed", "train.network", "train.file_size"}, name)
	})
	maps.Copy(s, train.Settings{"on": o.instance, "url": strings.Join(o.urls, " "), "resource": string(plan.Resource)})
	if o.rate > 0 {
		s["rate"] = fmt.Sprint(o.rate)
	}
	return s
}

// target returns the instance as one that can be trained on.
func (o *onMachine) target(s *controller.Status) (*ownTarget, error) {
	var known []string
	for i := range s.Instances {
		known = append(known, s.Instances[i].ID)
	}
	i := slices.Index(known, o.instance)
	if i < 0 {
		return nil, userErrorf("service %s has no instance %q%s", s.Service, o.instance, suggest(o.instance, known))
	}
	t := &ownTarget{on: o, probe: s.Instances[i].Probe, last: map[quell.Resource]train.Carried{}}
	t.base = "http://" + s.Instances[i].Address
	for _, text := range o.urls {
		u, err := url.Parse(text)
		if err != nil || u.Host != "" && (u.Scheme != "http" || u.Host != s.Instances[i].Address) || u.Path == "" {
			return nil, userErrorf("--url %s: write a path, as in /index.html, or a URL of %s, which is at %s", text, o.instance, t.base)
		}
		t.paths = append(t.paths, u.RequestURI())
	}
	probes, err := daemon.TrainingProbes(o.file)
	if err != nil {
		return nil, err
	}
	if t.probe != "" && probes.Capacity != nil {
		t.downloads = &probes
		t.flows = &train.Flows{Address: t.probe, Token: probes.Token, Capacity: *probes.Capacity, Seed: o.file.Train.Seed}
	}
	return t, nil
}

// outOfRotation takes the instance out of rotation, waits until it is empty, and puts it back after the work.
func (o *onMachine) outOfRotation(t *ownTarget, work func(context.Context) error) (err error) {
	limited, done := context.WithTimeoutCause(o.cmd.Context(), o.limit, errLimit)
	defer done()
	ctx, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	if err := o.order(ctx, bus.Command{ForS: o.lasts.Seconds()}, nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.putBack()) }()
	fmt.Fprintf(o.cmd.ErrOrStderr(), "%s is out of rotation; it is put back at the end, or %v after this command was killed\n", o.instance,
		o.lasts)
	var renewing sync.WaitGroup
	renewing.Go(func() { cancel(o.renew(ctx)) })
	defer renewing.Wait()
	defer cancel(nil)
	if err := awaitEmpty(o.cmd, o.file, o.instance, o.patience); err != nil {
		return err
	}
	var first bus.Trained
	if err = o.part(ctx, bus.Training{}, &first); err == nil {
		t.feels = first.Feels
		err = work(ctx)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && cause != context.Canceled {
		return cause
	}
	return err
}

// errLimit says that the time of a training is over.
var errLimit = errors.New("the training's time is over (--limit); the same command goes on from here")

// renew extends the training again and again, until ctx ends. It returns why it cannot go on.
func (o *onMachine) renew(ctx context.Context) error {
	heard := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.lasts / 5):
		}
		var refused refusal
		switch err := o.part(ctx, bus.Training{}, nil); {
		case err == nil:
			heard = time.Now()
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refused) || time.Since(heard) > o.lasts:
			return fmt.Errorf("the training cannot go on: %w", err)
		}
	}
}

// part does a part of the training, and reads the agent's answer into done unless that is nil.
func (o *onMachine) part(ctx context.Context, t bus.Training, done *bus.Trained) error {
	t.ForS = o.lasts.Seconds()
	return o.order(ctx, bus.Command{ForS: o.lasts.Seconds(), Training: &t}, done)
}

func (o *onMachine) order(ctx context.Context, c bus.Command, done *bus.Trained) error {
	c.Name, c.Instance, c.Force = bus.Train, o.instance, o.force
	reply, err := o.conn.Ask(ctx, o.file.Service.Name, c)
	switch {
	case err != nil:
		return err
	case reply.Error != "":
		return refusal(terminal.Printable(reply.Error, longestText))
	case done == nil:
		return nil
	}
	*done, err = readStatus[bus.Trained](reply.Body)
	return err
}

// putBack ends the training, also when the command was told to stop.
func (o *onMachine) putBack() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.cmd.Context()), 15*time.Second)
	defer cancel()
	var refused refusal
	switch err := o.order(ctx, bus.Command{}, nil); {
	case err == nil:
		fmt.Fprintf(o.cmd.ErrOrStderr(), "%s is back in rotation\n", o.instance)
		return nil
	case errors.As(err, &refused): // somebody else ended the training: what they want of the instance holds
		fmt.Fprintf(o.cmd.ErrOrStderr(), "the training is over already: %v; quell status says where %s is\n", refused, o.instance)
		return nil
	default:
		return fmt.Errorf("%s was not put back by this command; a controller that runs does it within %v: %w", o.instance, o.lasts, err)
	}
}

// train makes the runs that the store lacks.
func (o *onMachine) train(ctx context.Context, t *ownTarget, plan train.Options, store *train.Store, out string) error {
	resource := plan.Resource
	if resource == quell.Network && t.downloads == nil {
		return userErrorf("the network of %s cannot be probed: set probe.capacity, and probe in its entry of scaler.instances", o.instance)
	}
	live := train.LiveOptions{
		Targets: []train.Target{t}, Process: o.file.Train.Arrivals, Seed: o.file.Train.Seed, MaxFailed: mostFailed,
		MaxOff: mostOff,
		Visits: func(seed uint64) (loadgen.Visits, error) { return train.Paths(t.paths, seed), nil },
	}
	if resource == quell.Network {
		live.Probe = t.downloads
	}
	rate, err := o.perSecond(ctx, live, resource)
	if err != nil {
		return fmt.Errorf("finding how many requests use the %s fully: %w", resource, err)
	}
	fmt.Fprintf(o.cmd.ErrOrStderr(), "%.4g requests/s use the %s fully\n", rate, resource)
	live.PerSecond = func(r quell.Resource) float64 {
		if r != resource {
			return 0
		}
		return rate
	}
	machines, err := train.Live(live)
	if err != nil {
		return err
	}
	run := func(ctx context.Context, x train.Options) ([]model.TrainingRow, error) {
		x.Machines, x.Seed = machines, o.file.Train.Seed
		return train.Run(ctx, x)
	}
	return runTraining(ctx, o.cmd, run, store.In(plan), store, out)
}

// Lengths of a trial of how much requests use.
const (
	gaugeWarmUp = 500 * time.Millisecond
	gaugeRun    = 3 * time.Second
)

// mostFailed is the largest share of a run's requests that may fail.
const mostFailed = 0.05

// mostOff is how far a run's load may be from the wanted one, as a share of that.
const mostOff = 0.2

// perSecond returns how many requests per second use the resource fully.
func (o *onMachine) perSecond(ctx context.Context, live train.LiveOptions, r quell.Resource) (float64, error) {
	if o.rate > 0 {
		return o.rate, nil
	}
	live.PerSecond, live.MaxFailed = func(quell.Resource) float64 { return 1 }, 0 // a level is a rate; what fails ends the search
	machines, err := train.Live(live)
	if err != nil {
		return 0, err
	}
	return train.PerSecond(func(rate float64) (g train.Gauged, err error) {
		row, err := machines[0].Measure(ctx, train.RunRequest{Resource: r, Cell: train.Cell{Level: rate}, WarmUp: gaugeWarmUp, Run: gaugeRun,
			Seed: live.Seed})
		return train.Gauged{Rate: row.RequestRate, Use: row.Utilization, Failed: float64(row.Errors) / max(1, float64(row.Requests))}, err
	})
}

// ownTarget is an instance out of rotation. Its agent interferes and measures; the flows that use its network end here.
type ownTarget struct {
	on        *onMachine
	base      string // URL without a path
	paths     []string
	probe     string // address of the probe server; "": there is none
	downloads *probe.Options
	flows     *train.Flows // nil: the network's capacity is not known
	feels     []quell.Resource
	last      map[quell.Resource]train.Carried
}

// Service implements train.Target.
func (t *ownTarget) Service() string { return t.base }

// Probe implements train.Target.
func (t *ownTarget) Probe() string { return t.probe }

// Feels implements train.Target.
func (t *ownTarget) Feels(r quell.Resource) bool { return slices.Contains(t.feels, r) }

// Interfere implements train.Target.
func (t *ownTarget) Interfere(r quell.Resource, use float64) error {
	if r != quell.Network {
		return t.part(bus.Training{Resource: r, Use: use}, nil)
	}
	if t.flows == nil {
		return userErrorf("the capacity of the network is not known: set probe.capacity")
	}
	return t.flows.Set(use)
}

// Carried implements train.Target.
func (t *ownTarget) Carried(r quell.Resource) (c train.Carried, err error) {
	done, err := firstReading(t.on.cmd.Context(), r, func() (done bus.Trained, err error) {
		err = t.part(bus.Training{Read: true}, &done)
		return done, err
	})
	if err != nil {
		return c, err
	}
	own, known := done.Own[r]
	if !known {
		why := slices.DeleteFunc(done.Failures, func(f string) bool { return !strings.HasPrefix(f, string(r)) })
		return c, fmt.Errorf("the agent of %s has no reading of its %s: %s", t.on.instance, r, strings.Join(why, "; "))
	}
	c = train.Carried{Own: own, Interfering: done.Interfering[r]}
	if r == quell.Network && t.flows != nil {
		c.Interfering = t.flows.Seconds()
	}
	if before := t.last[r]; c.Own < before.Own {
		return c, fmt.Errorf("the agent of %s was restarted meanwhile", t.on.instance)
	}
	t.last[r] = c
	if done.Observation != nil {
		c.Sensed = *done.Observation
	}
	return c, nil
}

// firstReading reads until something is known of a resource, three times at most: the first window of a training may hold the making of the
// probes' files, which can look like more than a disk can do.
func firstReading(ctx context.Context, r quell.Resource, read func() (bus.Trained, error)) (done bus.Trained, err error) {
	for range 3 {
		if done, err = read(); err != nil {
			return done, err
		}
		if _, known := done.Own[r]; known || !tick.Sleep(ctx, time.Second) {
			return done, nil
		}
	}
	return done, nil
}

// part does a part of the training, also when the command was told to stop: the interferer must end then. While no controller answers, it
// tries again for as long as the instance stays out of rotation.
func (t *ownTarget) part(p bus.Training, done *bus.Trained) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.on.cmd.Context()), t.on.lasts)
	defer cancel()
	for {
		err := t.on.part(ctx, p, done)
		if err == nil || errors.As(err, new(refusal)) || !tick.Sleep(ctx, 500*time.Millisecond) {
			return err
		}
	}
}
