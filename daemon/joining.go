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
)

// keeper answers machines that want to join a service.
type keeper struct {
	admissions *auth.Admissions
	members    func() []quell.Member
	leads      func() bool
	log        *slog.Logger
	audit      *audit
	now        func() time.Time
}

// newKeeper makes the keeper of a service. What it decides goes into the journal.
func newKeeper(ctx context.Context, file *config.File, c *controller.Controller, lease *leader, log *slog.Logger) *keeper {
	k := &keeper{admissions: auth.NewAdmissions(keyringOf(file), file.Service.Name), members: c.Members, leads: lease.holds, log: log,
		audit: &audit{}, now: time.Now}
	k.admissions.Reports = c.Reports
	go k.audit.run(ctx, c.Note)
	return k
}

// Join implements bus.Doorkeeper. Only instances of the service may join.
func (k *keeper) Join(_ context.Context, token, from string, r bus.JoinRequest) bus.JoinAnswer {
	admitted, err := auth.Admitted{}, k.refuses(r.Instance)
	if err == nil {
		admitted, err = k.admissions.Join(token, r.Instance, r.Key, k.now())
	}
	switch {
	case err != nil:
		k.audit.refused(token, k.public(err))
		return bus.JoinAnswer{Error: k.public(err)}
	case admitted.New:
		k.log.Info("an instance joined", "instance", r.Instance, "token", token, "from", from, "key", r.Key)
		k.audit.joined(fmt.Sprintf("%s (with the join token %s, key %s)", r.Instance, from, r.Key))
	default:
		k.audit.joined(fmt.Sprintf("%s again (with the join token %s)", r.Instance, from))
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
	errNoMember = errors.New("the service has no such instance, or not yet: the scaler does not list it")
)

// public is what a machine is told of an error. Faults of the controller's machine are only logged.
func (k *keeper) public(err error) string {
	var refused *auth.Refusal
	if errors.As(err, &refused) || errors.Is(err, errStandsBy) || errors.Is(err, errNoMember) {
		return err.Error()
	}
	k.log.Error("an instance could not join", "error", err)
	return "the controller could not make a credential: its log says why"
}

// audit collects what is said in the journal about joining, so that a flood of requests becomes one entry a second.
type audit struct {
	mu       sync.Mutex
	came     []string
	more     int            // that do not fit into came
	refusals map[string]int // by token and reason
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

func (a *audit) refused(token, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := fmt.Sprintf("join token %s: %s", token, why)
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
