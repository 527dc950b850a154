package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
)

// Release puts back what the balancer had before Quell: weights, servers that were taken out, and none that Quell added. No controller may
// run with the same data folder. Of several services it releases the named one, or all if name is empty. tell is called after each, with
// what cannot be known, for people; the service's name is empty if it is the only one. A service that cannot be released does not keep the
// others from it.
func Release(
	ctx context.Context, path, name string, log *slog.Logger, tell func(service string, unknown []string, err error),
) (err error) {
	fleet, err := Drivers().LoadFleet(path)
	if err != nil {
		return err
	}
	files := fleet.Services
	if name != "" {
		file, err := LoadService(path, name)
		if err != nil {
			return err
		}
		files, fleet.Bad = []*config.File{file}, nil
	}
	if fleet.Shared.Local() {
		_, err := Drivers().Load(path) // says what such a file is for
		return err
	}
	if address, answers := ownBusAnswers(fleet.Shared); answers {
		return fmt.Errorf("nothing is released: something answers at %s (bus.listen), and it could not be asked. If it is the controller, "+
			"give the configuration with which it runs, as its user, or stop it first, because it would set its weights again", address)
	}
	unlock, err := lockData(fleet.Shared.Data)
	if err != nil {
		return fmt.Errorf("%w: the controller that holds it does not answer on the bus. Stop it first, because it would set its weights "+
			"again", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	var errs []error
	for _, file := range files {
		unknown, err := releaseOne(ctx, file, log)
		if err == nil {
			err = earlier{file.Data}.store(controller.Released{By: person(), At: time.Now(), Unknown: unknown})
		}
		own := ""
		if file.OneOfSeveral() {
			own = file.Service.Name
		}
		tell(own, unknown, err)
		if err != nil && own != "" {
			err = fmt.Errorf("service %s: %w", own, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, fleet.Err())...)
}

// ownBusAnswers returns whether something listens where the controller's own bus would.
func ownBusAnswers(file *config.File) (address string, answers bool) {
	if file.Bus.URL != "" {
		return "", false // it runs without a controller, too
	}
	conn, err := net.DialTimeout("tcp", file.Bus.Listen, time.Second)
	if err != nil {
		return "", false
	}
	_ = conn.Close()
	return file.Bus.Listen, true
}

func releaseOne(ctx context.Context, file *config.File, log *slog.Logger) (unknown []string, err error) {
	var stop cleanups
	defer func() { err = errors.Join(err, stop.run()) }()
	driver, err := newBalancer(file, nil, log, &stop)
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
