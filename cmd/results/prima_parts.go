package main

// primaParts are the experiments of the page on PRIMA.
func primaParts() []labPart {
	return []labPart{
		{name: "table-ii", command: "validate", trains: true, title: "Table II: the models on points they have not seen"},
		{name: "plans", of: "table-ii", command: "replay", title: "Fewer experiments than the paper's grid"},
		{name: "table-iii", seeds: 3, title: "Table III: round robin"},
		{name: "table-iv", seeds: 3, title: "Table IV: least connections"},
		{name: "fig-2", seeds: 3, title: "Figure 2: LSF where both suffer alike"},
		{name: "fig-3", seeds: 3, title: "Figure 3: LSF where one suffers less"},
		{name: "table-v", seeds: 3, title: "Table V: LR against PRIMA"},
		{name: "table-vi", trains: true, seeds: 3, title: "Table VI: scaling out and in"},
		{name: "table-vii-exp", seeds: 3, title: "Table VII: exponential arrivals"},
		{name: "table-vii-det", seeds: 3, title: "Table VII: deterministic arrivals"},
		{name: "table-vii-ramp", seeds: 3, title: "Table VII: a ramp"},
		{name: "table-vii-calibrated", seeds: 3, title: "Section VI-D: the ramp, calibrated"},
		{name: "table-viii-x", seeds: 3, title: "Tables VIII to X, small: many instances"},
		{name: "reaction", title: "How soon it reacts", sum: reaction},
		{name: "probing", of: "table-ii", command: "probing", title: "What a probe budget buys"},
		{name: "quiet", title: "How often it acts for nothing", sum: quiet},
	}
}
