// Package rivals has the policies that Quell is compared with: what balancers and autoscalers do today, and the baselines of papers.
package rivals
