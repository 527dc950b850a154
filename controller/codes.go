package controller

import "slices"

// codes are those of the reasons of a service's plans, in order. Each has a counter from the start, so that its first rise can be
// seen. A test fails for a code that is missing here.
var codes = []string{
	"authority", "calibrated", "calm", "capacity_short", "classified", "confirming", "credits_spent", "cut", "deaf_probes", "doubtful",
	"errors", "failed", "followed", "group_max", "group_min", "guard_yields", "handover", "held", "interference", "join", "learning",
	"learning_anew", "left_to_balancer", "machine_unread", "no_models", "other_services", "out_of_reach", "outlier", "outliers", "overload",
	"override", "own_load", "own_work", "probed_otherwise", "prober", "refused", "replace", "reserve", "scale_in", "setting",
	"setting_unknown", "shift", "slow_start", "stabilizing", "start_overdue", "step", "suspected", "taken_back", "unfelt", "unfollowed",
	"unprobed", "unreachable", "untold", "untrained", "utilization", "violation", "waits_hypervisor", "waits_neighbours", "waits_own",
	"waits_quota", "waits_unknown",
}

// otherCode counts reasons whose code is not among codes.
const otherCode = "other"

func knownCode(code string) string {
	if _, ok := slices.BinarySearch(codes, code); ok {
		return code
	}
	return otherCode
}
