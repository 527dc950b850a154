package daemon

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/outage"
)

// retireEvery is how often the credentials of removed instances are looked for, and the age below which none is revoked.
const retireEvery = 10 * time.Second

// retiring revokes and removes the credentials of removed instances while this controller leads. It does so only for credentials
// that agents on this machine found by themselves.
func retiring(ctx context.Context, file *config.File, c *controller.Controller, lease *leader, log *slog.Logger) {
	ring := keyringOf(file)
	failures := outage.Kinds{Logger: log, What: "credentials of instances that are gone stay for now", Level: slog.LevelWarn}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retireEvery):
		}
		if !lease.holds() {
			continue
		}
		ids, err := ring.Retire(file.Service.Name, time.Now().Add(-retireEvery), func(id string) bool { return !c.Knows(id) })
		if err != nil {
			failures.Note(err.Error())
		}
		if len(ids) > 0 {
			log.Info("revoked the credentials of instances that are gone", "instances", strings.Join(ids, ","))
		}
	}
}
