// Package quell holds the domain of Quell: services and their objectives, instances, what was observed of
// them, and the plans made for them. It depends on the standard library only; every other package builds on it.
//
// Units are in names or types: utilisations, weights and rates of error are fractions, rates are per second,
// network capacity is in bits per second, *MS fields are milliseconds, *S fields are seconds. A reading that was
// not taken is absent (a nil pointer or a missing map key), never 0, -1 or NaN.
package quell
