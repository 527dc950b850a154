// Package stats holds the statistics that the models need and gonum lacks: isotonic regression, intervals of a
// mean, the pooling of runs that are known by their moments only, and decision trees. Everything here is pure.
package stats
