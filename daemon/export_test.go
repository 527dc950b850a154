package daemon

import (
	"context"
	"log/slog"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent"
)

// AmendedController is like Controller, but more can add actions to each plan.
func AmendedController(ctx context.Context, path string, more func(*quell.Snapshot, *quell.Plan), log *slog.Logger) error {
	return runController(ctx, path, more, nil, log)
}

// DrivingAgent is like Agent, with drivers that set limits and settings.
func DrivingAgent(
	ctx context.Context, path, instance string, limiters map[quell.Resource]agent.Limiter, setters map[string]agent.Setter, log *slog.Logger,
) error {
	return (&reporter{path: path, limiters: limiters, setters: setters, log: log}).live(ctx, instance, nil)
}
