package scaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// stopper is what StopEach needs of a Driver.
type stopper interface {
	Members(ctx context.Context) ([]quell.Member, error)
	Stop(ctx context.Context, ids []string) error
}

// StopEach makes a driver stop instances, and returns those that it could not stop. If it cannot stop all at once, it is told to stop them
// one by one, so that one which the provider refuses to end does not keep the others running. The first attempt may have stopped some, and
// their ids may be other instances' by now, which are left alone: meant tells whether a member is one that is to be stopped. limit is how
// long one attempt may take.
func StopEach(ctx context.Context, d stopper, ids []string, limit time.Duration, meant func(*quell.Member) bool) ([]string, error) {
	err := stop(ctx, d, ids, limit)
	if err == nil {
		return nil, nil
	}
	if len(ids) == 1 || ctx.Err() != nil {
		return ids, err
	}
	var running []string
	var errs []error
	for _, id := range ids {
		if err := stopAgain(ctx, d, id, limit, meant); err != nil {
			running, errs = append(running, id), append(errs, err)
		}
	}
	return running, errors.Join(errs...)
}

func stop(ctx context.Context, d stopper, ids []string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := d.Stop(ctx, ids); err != nil {
		return fmt.Errorf("stopping %s: %w", strings.Join(ids, ", "), err)
	}
	return nil
}

// stopAgain stops an instance if the driver still lists it, and no other one, under its id.
func stopAgain(ctx context.Context, d stopper, id string, limit time.Duration, meant func(*quell.Member) bool) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	members, err := d.Members(limited)
	if err != nil {
		return fmt.Errorf("stopping %s: asking whether it still runs: %w", id, err)
	}
	if !slices.ContainsFunc(members, func(m quell.Member) bool { return m.ID == id && meant(&m) }) {
		return nil
	}
	return stop(ctx, d, []string{id}, limit)
}
