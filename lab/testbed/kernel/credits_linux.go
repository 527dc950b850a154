package kernel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"
)

// noticeable is by how much a limit must change to be set again, as a fraction.
const noticeable = 0.02

// KeepCredits makes a host's instance burstable until ctx ends: each counting, the host's processors are limited to what the purse allows.
// The limit is the host's and not the instance's, so that the instance feels it and cannot read it. Nothing else may use the host's
// processors. told, which may be nil, is called when the instance is slowed down for lack of credits, and when it is fast again. At the end
// the host has all its processors again.
func KeepCredits(ctx context.Context, prefix, host string, purse *Purse, told func(slow bool)) (err error) {
	g, err := findGroups(machine)
	if err != nil {
		return err
	}
	top := filepath.Join(base(prefix), host)
	if told == nil {
		told = func(bool) {}
	}
	defer func() { err = errors.Join(err, g.limitCPU(top, purse.bucket.Burst)) }()
	ticker := time.NewTicker(counting)
	defer ticker.Stop()
	limit, slow := 0.0, false
	half := (purse.bucket.Baseline + purse.bucket.Burst) / 2
	for {
		used, err := g.used(filepath.Join(top, "vm"))
		if err != nil {
			return fmt.Errorf("counting the credits of host %s: %w", host, err)
		}
		allowed := purse.Count(time.Now(), used, counting)
		if math.Abs(allowed-limit) > noticeable*limit {
			if err := g.limitCPU(top, allowed); err != nil {
				return fmt.Errorf("limiting host %s, which has %.3g credits: %w", host, purse.Balance(), err)
			}
			limit = allowed
		}
		if !slow && allowed < half || slow && allowed == purse.bucket.Burst {
			slow = !slow
			told(slow)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
