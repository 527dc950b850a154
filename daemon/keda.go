package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/keda"
)

// answerKEDA answers KEDA's external scaler if the configuration asks for it.
func answerKEDA(file *config.File, c *controller.Controller, log *slog.Logger, stop *cleanups) error {
	if file.KEDA.Listen == "" {
		return nil
	}
	secure := file.KEDA.TLS
	if secure != (config.TLS{}) && (secure.Cert == "" || secure.Key == "") {
		return &quell.UserError{Err: errors.New("keda.tls: a server needs both cert and key")}
	}
	address, end, err := keda.Listen(keda.Options{
		Address: file.KEDA.Listen, Secure: certfile.Files{Cert: secure.Cert, Key: secure.Key, ClientCA: secure.CA, CAKey: "ca"},
		Service: file.Service.Name, Logger: log,
		Wanted: func() (int, error) { return wanted(c.Status(), time.Now()) },
	})
	if err != nil {
		return err
	}
	stop.add(func() error { end(); return nil })
	log.Info("KEDA is answered", "address", address, "tls", secure.Cert != "")
	return nil
}

// After so many periods without a decision, and at least this long, the wanted number is unknown.
const (
	wantedPeriods = 3
	wantedLeast   = 30 * time.Second
)

// wanted returns how many instances the last decision wants, or why that is unknown.
func wanted(s controller.Status, now time.Time) (int, error) {
	old := max(time.Duration(wantedPeriods*s.SamplingS*float64(time.Second)), wantedLeast) // a reload may change the period
	switch {
	case !s.Leading:
		return 0, errors.New("this controller is not the leader")
	case s.Wanted == nil || s.At.IsZero():
		return 0, errors.New("no decision has been made yet")
	case now.Sub(s.At) > old:
		return 0, fmt.Errorf("the last decision was made %v ago", now.Sub(s.At).Round(time.Second))
	}
	return *s.Wanted, nil
}
