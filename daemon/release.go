package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
)

// Release puts back what the balancer had before Quell: weights, servers that were taken out, and none that Quell added. No controller may
// run with the same data folder. It returns, for people, what cannot be known.
func Release(ctx context.Context, path string, log *slog.Logger) (unknown []string, err error) {
	file, err := Drivers().Load(path)
	if err != nil {
		return nil, err
	}
	var stop cleanups
	defer func() { err = errors.Join(err, stop.run()) }()
	unlock, err := lockData(file.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: the controller that holds it does not answer on the bus. Stop it first, because it would set its weights "+
			"again", err)
	}
	stop.add(unlock)
	driver, err := newBalancer(file, log, &stop)
	if err != nil {
		return nil, err
	}
	restorer, ok := driver.(balancer.Restorer)
	if !ok {
		return nil, &quell.UserError{Err: fmt.Errorf("balancer %s has no weights but those that Quell sets: there is nothing to put back",
			file.Balancer.Kind)}
	}
	return restorer.Restore(ctx)
}
