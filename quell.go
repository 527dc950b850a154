// Package quell holds the domain types of Quell: services and their objectives, instances, observations, and plans. It depends only on the
// standard library; every other package builds on it.
//
// Units are in names or types. Utilisations, weights and error rates are fractions, other rates are per second, network capacity is in
// bits per second, *MS fields are milliseconds, *S fields are seconds. A reading that was not taken is absent (a nil pointer or a missing
// map key), never 0, -1 or NaN.
package quell
