// Package stats holds the statistics that the models need and gonum lacks: isotonic regression, intervals of a
// mean, the pooling of runs that are known by their moments only, least squares
// with bounds, quantile regression, and decision trees. Everything here is pure.
package stats
