// Package stats holds the statistics that the models need and the library gonum lacks: isotonic regression, confidence
// intervals of a mean, the pooling of runs of which only mean and spread are known, least squares with bounds, quantile
// regression, and decision trees. All its functions are pure.
package stats
