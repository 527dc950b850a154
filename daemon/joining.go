package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/scaler"
)

// keeper answers machines that want to join a service.
type keeper struct {
	admissions *auth.Admissions
	verifier   verifier // of the scaler; nil: it accepts no proofs
	members    func() []quell.Member
	leads      func() bool
	log        *slog.Logger
	audit      *audit
	failures   *outage.Kinds // of this machine, or of the platform that checks proofs
	now        func() time.Time
}

// verifier checks what a machine shows as proof that it is an instance. A scaler's driver may be one.
type verifier interface {
	// Verify returns an error if a proof does not show that its sender is an instance: a *scaler.Unproved is for the sender, others are not.
	// again says that the instance has shown one before, from a machine with the same key. If names of instances are used again, machine is
	// what the platform calls the one that has the name now.
	Verify(ctx context.Context, instance, proof string, again bool) (machine string, err error)
}

// proofOf is the kind of proof that a scaler's settings accept, "" for none.
func proofOf(s scaler.Settings) string {
	if p, ok := s.(interface{ Proof() string }); ok {
		return p.Proof()
	}
	return ""
}

// newKeeper makes the keeper of a service. What it decides goes into the journal.
func newKeeper(ctx context.Context, file *config.File, c *controller.Controller, scales scaler.Driver, lease *leader,
	log *slog.Logger,
) *keeper {
	k := &keeper{admissions: auth.NewAdmissions(keyringOf(file), file.Service.Name), members: c.Members, leads: lease.holds, log: log,
		failures: &outage.Kinds{Logger: log, What: "an instance could not join", Level: slog.LevelError}, audit: &audit{}, now: time.Now}
	k.admissions.Reports = c.Reports
	if proofOf(file.Scaler.Settings) != "" {
		k.verifier, _ = scales.(verifier)
	}
	go k.audit.run(ctx, c.Note)
	return k
}

// Join implements bus.Doorkeeper. Only instances of the service may join.
func (k *keeper) Join(_ context.Context, token, from string, r bus.JoinRequest) bus.JoinAnswer {
	admitted, err := auth.Admitted{}, k.refuses(r.Instance)
	if err == nil {
		admitted, err = k.admissions.Join(token, r.Instance, r.Key, k.now())
	}
	return k.answer("the join token "+token, "the join token "+from, r, admitted, err)
}

// checkTime limits how long a platform may take to check a proof.
const checkTime = 5 * time.Second

// Prove implements bus.Doorkeeper. Only instances of the service may join.
func (k *keeper) Prove(ctx context.Context, kind, from string, r bus.JoinRequest) bus.JoinAnswer {
	admitted, err := auth.Admitted{}, k.refuses(r.Instance)
	switch {
	case err != nil:
	case k.verifier == nil:
		err = errNoProofs
	default:
		ctx, cancel := context.WithTimeout(ctx, checkTime)
		defer cancel()
		admitted, err = k.admissions.Prove(kind, r.Instance, r.Key, k.now(), func(again bool) (string, error) {
			return k.verifier.Verify(ctx, r.Instance, r.Proof, again)
		})
	}
	return k.answer("a proof of "+kind, "a proof of "+from, r, admitted, err)
}

// answer is what a machine is told, and what is written down. with names in refusals what the machine showed, and how also from where.
func (k *keeper) answer(with, how string, r bus.JoinRequest, admitted auth.Admitted, err error) bus.JoinAnswer {
	switch {
	case err != nil:
		k.audit.refused(with, k.public(err))
		return bus.JoinAnswer{Error: k.public(err)}
	case admitted.New:
		k.log.Info("an instance joined", "instance", r.Instance, "with", how, "key", r.Key)
		k.audit.joined(fmt.Sprintf("%s (with %s, key %s)", r.Instance, how, r.Key))
	default:
		k.audit.joined(fmt.Sprintf("%s again (with %s)", r.Instance, how))
	}
	return bus.JoinAnswer{Claim: admitted.Claim, LifetimeS: admitted.Lifetime.Seconds()}
}

// Renew implements bus.Doorkeeper.
func (k *keeper) Renew(_ context.Context, instance string, r bus.JoinRequest) bus.JoinAnswer {
	admitted, err := auth.Admitted{}, k.refuses(instance)
	if err == nil {
		admitted, err = k.admissions.Renew(instance, r.Key, k.now())
	}
	if err != nil {
		return bus.JoinAnswer{Error: k.public(err)}
	}
	return bus.JoinAnswer{Claim: admitted.Claim, LifetimeS: admitted.Lifetime.Seconds()}
}

// refuses returns why no instance of a name may have a credential now.
func (k *keeper) refuses(instance string) error {
	if !k.leads() {
		return errStandsBy
	}
	if !slices.ContainsFunc(k.members(), func(m quell.Member) bool { return m.ID == instance }) {
		return errNoMember
	}
	return nil
}

var (
	errStandsBy = errors.New("this controller does not lead yet: ask again")
	errNoProofs = errors.New("this controller accepts no proofs: set scaler.join in its configuration")
	errNoMember = errors.New("the service has no such instance, or not yet: the scaler does not list it")
)

// public is what a machine is told of an error. Faults of the controller's machine are only logged.
func (k *keeper) public(err error) string {
	var refused *auth.Refusal
	var unproved *scaler.Unproved
	ours := func(known error) bool { return errors.Is(err, known) }
	if errors.As(err, &refused) || errors.As(err, &unproved) ||
		slices.ContainsFunc([]error{errNoProofs, errStandsBy, errNoMember}, ours) {
		return err.Error()
	}
	k.failures.Note(err.Error())
	return "the controller could not make a credential: its log says why"
}

// audit collects what is said in the journal about joining, so that a flood of requests becomes one entry a second.
type audit struct {
	mu       sync.Mutex
	came     []string
	more     int            // that do not fit into came
	refusals map[string]int // by what was shown and reason
}

const (
	mostNamed    = 50 // instances in one entry
	mostRefusals = 20 // kinds of refusals in one entry
	auditEvery   = time.Second
)

func (a *audit) joined(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.came) >= mostNamed {
		a.more++
		return
	}
	a.came = append(a.came, text)
}

func (a *audit) refused(with, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := strings.TrimPrefix(with, "the ") + ": " + why
	if _, known := a.refusals[text]; !known && len(a.refusals) >= mostRefusals {
		text = "other reasons"
	}
	if a.refusals == nil {
		a.refusals = map[string]int{}
	}
	a.refusals[text]++
}

// take returns what was collected since the last call, "" if nothing was.
func (a *audit) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var parts []string
	if len(a.came) > 0 {
		text := "joined: " + strings.Join(a.came, ", ")
		if a.more > 0 {
			text += fmt.Sprintf(", and %d more (quell credentials list)", a.more)
		}
		parts = append(parts, text)
	}
	var refused []string
	for text, n := range a.refusals {
		refused = append(refused, fmt.Sprintf("%s (%d)", text, n))
	}
	slices.Sort(refused)
	if len(refused) > 0 {
		parts = append(parts, "refused to join: "+strings.Join(refused, "; "))
	}
	a.came, a.more, a.refusals = nil, 0, nil
	return strings.Join(parts, ". ")
}

// run writes what was collected until ctx ends.
func (a *audit) run(ctx context.Context, note func(context.Context, string)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(auditEvery):
		}
		if text := a.take(); text != "" {
			note(ctx, text)
		}
	}
}
