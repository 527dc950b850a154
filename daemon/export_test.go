package daemon

import (
	"context"
	"log/slog"

	"github.com/quellhq/quell/agent"
	"github.com/quellhq/quell/policy"
)

// ControllerWith is like Controller, with these policies.
func ControllerWith(ctx context.Context, path string, policies policy.Table, log *slog.Logger) error {
	return runController(ctx, path, policies, nil, log)
}

// DrivingAgent is like Agent, with drivers that apply settings.
func DrivingAgent(ctx context.Context, path, instance string, setters map[string]agent.Setter, log *slog.Logger) error {
	return (&reporter{path: path, setters: setters, log: log}).live(ctx, instance, nil)
}
