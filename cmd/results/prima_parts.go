package main

// primaParts are the page's experiments in order. Paper's figures are quoted from its tables and section VI.
func primaParts() []labPart {
	return []labPart{
		{name: "table-ii", command: "validate", trains: true, title: "Table II: the models on points they have not seen",
			text: "Paper: over ten held-out points the response-time model errs by 7.2% on average and 9.8% at most (file workload 6.8%), the interference model by 6.9% (6.1%). Here each point, a load beside a neighbour, is measured for three minutes after a training of its own."},
		{name: "plans", of: "table-ii", command: "replay", title: "Fewer experiments than the paper's grid",
			text: "The runs of the training above, drawn again at random by grids and by the adaptive plan (`train.plan: adaptive`), 20 times each; errors are those at the held-out points of Table II. Capacity is a utilisation, judged where the response time is within a factor of 1.5 of the threshold."},
		{name: "table-iii", title: "Table III: round robin",
			text:   "Paper: two instances, a neighbour beside the second; round robin gives both the same throughput, and the second answers more than three times as slowly.",
			phases: []phase{{"alone", "both alike", 0, 10}, {"a neighbour beside the second", "same rates; R2 > 3 x R1", 20, 60}}},
		{name: "table-iv", title: "Table IV: least connections",
			text:   "Paper: with 30 and 20 open connections the second instance takes more than twice as long as the first: 30 connections say nothing of a neighbour.",
			phases: []phase{{"alone", "both alike", 0, 10}, {"a neighbour beside the second", "fewer connections on 2; R2 > 2 x R1", 20, 60}}},
		{name: "fig-2", title: "Figure 2: LSF where both suffer alike",
			text:   "Paper: the first instance at 40% with severity 0.75 answers in 245 ms, above 200. LSF adds one that suffers as much and shares equally: both are within the threshold.",
			phases: []phase{{"one instance", "U 40%, SF 0.75, R 1.2 of the threshold", 0, 5}, {"settled", "U 20% and 20%, SF 0.47 and 1.10, R 0.64 and 0.92", 60, 120}}},
		{name: "fig-3", title: "Figure 3: LSF where one suffers less",
			text:   "Paper: LSF sends the second, with severity 0.25, three times the load: U 10% and 30%, R 59 and 262 ms, above 200. PRIMA shares 17% and 23%, and both are within. Here the load is 60%, since an equal share of 40% would do.",
			phases: []phase{{"one instance", "U 40%, SF 0.75, R 1.2 of the threshold", 5, 20}, {"shared", "LSF: U 10% and 30%, R 0.3 and 1.3; PRIMA: 17% and 23%, both within", 26, 31}, {"later", "-", 60, 120}}},
		{name: "table-v", title: "Table V: LR against PRIMA",
			text:   "Paper: LR moves U from 35 and 15% to 17 and 33%, which takes 82 and 365 ms; PRIMA to 28 and 22%, 188 and 192 ms (threshold 200). Here 52%, and a hand holds 70 and 30% of it until the account begins.",
			phases: []phase{{"begin", "35% and 15%, R 1.1 and 0.5", 0, 35}, {"shared", "LR: 17% and 33%, R 0.4 and 1.8; PRIMA: 28% and 22%, R 0.94 and 0.96", 41, 45}, {"later", "-", 46, 120}}},
		{name: "table-vi", trains: true, title: "Table VI: scaling out and in",
			text: "Paper: one instance at 30% is just within (978 of 1000 ms); at 40% it is not (1623), a second one comes, and both take 0.48 of the threshold; at 30% again it goes; with neighbours beside both a second one comes again, shared 18% to 12%.",
			phases: []phase{{"30%", "1 instance, U 30%, R 0.98", 0, 25}, {"40%", "1, U 40%, R 1.6", 25, 30}, {"scaled out", "2, U 20% and 20%, R 0.48", 45, 75},
				{"30% again", "1, U 30%, R 0.99", 105, 130}, {"neighbours", "1, U 30%, SF 0.45, R 1.5", 130, 135}, {"scaled out", "2, U 18% and 12%, SF 0.27 and 0.37, R 0.54 and 0.36", 150, 180}}},
		{name: "table-vii-exp", title: "Table VII: exponential arrivals",
			text: "Paper: 755 ms before, 3882 with neighbours, 989 and 982 on two instances (threshold 1000).", phases: tableVII("0.76", "3.9", "2, R 0.99 and 0.98")},
		{name: "table-vii-det", title: "Table VII: deterministic arrivals",
			text: "Paper: models trained with exponential arrivals serve as well: 737, 3669, then 905 and 882 ms.", phases: tableVII("0.74", "3.7", "2, R 0.91 and 0.88")},
		{name: "table-vii-ramp", title: "Table VII: a ramp",
			text: "Paper: the surge is more than the models expect: 834, 4032, then 1052 and 1100 ms, about 10% above.", phases: tableVII("0.83", "4.0", "2, R 1.05 and 1.10")},
		{name: "table-vii-calibrated", title: "Section VI-D: the ramp, calibrated",
			text: "Paper: with delta 10% the measured response time corrects the severity (2.3 to 2.7), the capacity falls from 15 to 13%, and the threshold is kept.", phases: tableVII("0.83", "4.0", "within the threshold")},
		{name: "table-viii-x", title: "Tables VIII to X, small: many instances",
			text: "Paper: loads of 50, 70, 120, 180 (and 300)% end with 1, 2, 3, 4 (and 6) instances; neighbours beside three and then a fourth need 8 and then 10; when two hosts calm down, four instances go in one step. Here the load ends at 180% and six instances are the most.",
			phases: []phase{{"50%", "1", 0, 15}, {"70%", "2 at 35%", 30, 45}, {"120%", "3 at 40%", 62, 80}, {"180%", "4 at 45%", 100, 120},
				{"two neighbours", "more, those that suffer at 19.5%", 133, 145}, {"a third", "more, it at 9%", 158, 170}, {"two hosts calm", "fewer, in one step", 185, 200}}},
		{name: "reaction", title: "How soon it reacts",
			text:  "Twenty onsets of a neighbour with 0.6 of a link, beside one of four instances at 0.25 each, at T = 1 s, W = 1. Aim: a median of at most 3.5 s from the interferer's start to the first plan applied.",
			write: writeReaction},
		{name: "probing", of: "table-ii", command: "probing", title: "What a probe budget buys",
			text: "The error is how far one period's severity lies from the long run's, at a load of 0.4 beside a neighbour with 0.3 of the link; the period is 1.6 s, so that 1 MB in one download is 5%. Aim: at most 2% of the link with an error no larger than that."},
		{name: "quiet", title: "How often it acts for nothing",
			text:  "Twenty minutes without neighbours, the load varying. Aim: actions in fewer than 3% of the periods.",
			write: writeQuiet},
	}
}

func tableVII(before, noise, after string) []phase {
	return []phase{{"alone", "1, R " + before, 0, 20}, {"neighbours", "1, R " + noise, 20, 24}, {"scaled out", after, 50, 80}}
}
