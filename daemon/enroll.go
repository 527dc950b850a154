package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/bus/subjects"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/namedfile"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/scaler/aws"
)

// enrolment gets, keeps and renews the credential of a machine that joins with a token or a proof.
type enrolment struct {
	file    *config.File
	grant   auth.Grant
	holding auth.Holding
	log     *slog.Logger
}

// joins returns whether a process gets its credential by joining: an agent with a token or proof and without a credential that a person
// made.
func joins(file *config.File, role auth.Role) bool {
	if file.Bus.Join == "" && file.Bus.Proof == "" || role != auth.Sensor {
		return false
	}
	_, err := os.Stat(file.Bus.Credentials)
	return file.Bus.Credentials == "" || err != nil
}

// holdingOf is where an agent keeps the credential that it got by joining.
func holdingOf(file *config.File, g auth.Grant) auth.Holding {
	return auth.Holding{Path: filepath.Join(file.Data, "joined", subjects.Escape(g.Service), subjects.Escape(g.ID)+".creds")}
}

func newEnrolment(file *config.File, instance string, log *slog.Logger) *enrolment {
	g := auth.Grant{Role: auth.Sensor, Service: file.Service.Name, ID: instance}
	return &enrolment{file, g, holdingOf(file, g), log.With("service", g.Service, "instance", g.ID)}
}

// Waits of a machine that joins.
const (
	askingTime = 5 * time.Second
	firstRetry = time.Second
	lastRetry  = time.Minute
	renewAfter = 0.5 // of a credential's lifetime
)

// run renews the credential until ctx ends, when half of its lifetime is over by this machine's steady clock: the time of day may be
// wrong. The first renewal is at the start. renewed is called after each.
func (e *enrolment) run(ctx context.Context, renewed func()) {
	failures := outage.Kinds{Logger: e.log, What: "no credential for the bus, asking again", Level: slog.LevelWarn}
	for tries := 0; ; tries++ {
		lifetime, err := e.obtain(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := min(lastRetry, firstRetry<<min(tries, 10))
		if err != nil {
			failures.Note(err.Error())
		} else {
			if tries > 0 {
				e.log.Info("got a credential for the bus")
			}
			renewed()
			tries, wait = -1, time.Duration(renewAfter*float64(lifetime))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait - rand.N(wait/4+1)):
		}
	}
}

// obtain gets a credential: with the one that the machine has, or else with its token or proof.
func (e *enrolment) obtain(ctx context.Context) (lifetime time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	key, err := e.holding.Key()
	if err != nil {
		return 0, err
	}
	answer, err := e.askWith(ctx, e.holding.Path, key)
	if err != nil && !errors.Is(err, bus.ErrRefused) {
		if e.file.Bus.Join == "" {
			answer, err = e.askByProof(ctx, auth.Identity{Proves: e.proves()}, key)
		} else {
			answer, err = e.askWith(ctx, e.file.Bus.Join, key)
		}
	}
	if err != nil {
		return 0, err
	}
	return answer.Lifetime(), e.holding.Store(answer.Claim, e.grant)
}

// askWith asks with the credential in a file: the machine's own, a join token, or one that lets it show its proof on an external bus.
func (e *enrolment) askWith(ctx context.Context, path, key string) (bus.JoinAnswer, error) {
	text, err := namedfile.Read(path, maxCredential)
	if err != nil {
		return bus.JoinAnswer{}, &quell.UserError{Err: fmt.Errorf("bus.join: %w", err)}
	}
	shown := auth.Identity{Credential: text}
	role, err := auth.RoleOf(text)
	switch {
	case err == nil && role == auth.Prove && e.file.Bus.Proof != "":
		return e.askByProof(ctx, shown, key)
	case err == nil && (role == auth.Sensor || role == auth.Join):
		return e.ask(ctx, shown, bus.JoinRequest{Instance: e.grant.ID, Key: key})
	}
	return bus.JoinAnswer{}, &quell.UserError{Err: fmt.Errorf("bus.join: %s is no join token: make one on the controller's machine with "+
		"`quell join-token create`", path)}
}

// proves names what the machine shows to a bus that needs no credential for it.
func (e *enrolment) proves() auth.Grant {
	return auth.Grant{Role: auth.Prove, Service: e.grant.Service, ID: string(e.file.Bus.Proof)}
}

func (e *enrolment) askByProof(ctx context.Context, shown auth.Identity, key string) (bus.JoinAnswer, error) {
	proof, err := ownProof(ctx, e.file.Bus)
	if err != nil {
		return bus.JoinAnswer{}, err
	}
	return e.ask(ctx, shown, bus.JoinRequest{Instance: e.grant.ID, Key: key, Proof: proof})
}

// ownProof is what this machine's platform gives it to prove who it is.
func ownProof(ctx context.Context, b config.Bus) (string, error) {
	if b.Proof == config.ProofAWS {
		proof, err := aws.OwnIdentity(ctx)
		if err != nil {
			return "", &quell.UserError{Err: fmt.Errorf("bus.proof: asking this machine's metadata for its instance identity document: %w", err)}
		}
		return proof, nil
	}
	text, err := namedfile.Read(b.ProofToken, maxCredential)
	if err != nil {
		return "", &quell.UserError{Err: fmt.Errorf("bus.proof_token: %w; project a token of the pod's service account there", err)}
	}
	return strings.TrimSpace(string(text)), nil
}

// ask asks once, over a connection of its own.
func (e *enrolment) ask(ctx context.Context, shown auth.Identity, r bus.JoinRequest) (bus.JoinAnswer, error) {
	conn, err := bus.Connect(bus.Options{URL: busOf(e.file), TLS: bus.TLS(e.file.Bus.TLS), Name: "joining " + e.grant.ID,
		Identify: func() (auth.Identity, error) { return shown, nil }})
	if err != nil {
		return bus.JoinAnswer{}, err
	}
	defer conn.Close()
	return conn.AskToJoin(ctx, e.grant.Service, r)
}

// readJoined reads the credential that a machine got by joining.
func readJoined(file *config.File, g auth.Grant) ([]byte, error) {
	text, err := namedfile.Read(holdingOf(file, g).Path, maxCredential)
	if err != nil {
		return nil, fmt.Errorf("%s has not joined yet: %w", g.ID, err)
	}
	return text, auth.Check(text, g)
}
