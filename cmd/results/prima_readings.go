package main

// readings say, for each part of the page, how what was measured compares with the paper and why: they belong to the
// figures that are on the page, and are read again whenever these are measured anew.
var readings = map[string]string{
	"table-ii": "The joint model is the default for what is seen here: the paper's one curve over the total errs four times as much, because on a link that is shared equally " +
		"one total belongs to many severities. The response-time model's largest error lies where little load meets a strong neighbour and the curves are steep; it is to the safe side.",
	"plans":     "Where the objective is the mean, the adaptive plan needs half of the runs for the same capacity: 60 of its runs err no more than 129 of the grid. For the p95 it is no better than a grid of as many runs. Its interference model is worse over all points, 15% against 8%, since it leaves alone what lies far from the threshold.",
	"table-iii": "As in the paper: the same rates, and the disturbed instance takes three and a half times as long. PRIMA adds instances and takes the disturbed one out.",
	"table-iv": "As in the paper in kind: the disturbed instance gets fewer requests and still takes nearly three times as long. Few connections are open at a time here, so most requests find " +
		"both servers idle, and least connections then shares like round robin.",
	"fig-2":                "LSF as in the paper: a second instance, equal shares, both within the threshold. PRIMA leaves the host with a neighbour for one without as soon as it finds one, which the paper's two sockets did not have.",
	"fig-3":                "As in the paper in kind, and more so: while idle the second shows no severity at all, for probes of 25 KB hardly feel a quarter of an idle link, so LSF sends it nearly everything and it takes five times the threshold; two shifts later both are within. PRIMA shares 46 to 54%, and both are within from the beginning.",
	"table-v":              "As in the paper in kind: once the violation is confirmed LR hands the second 61% of the traffic, which then takes 26 ms where 21.5 are allowed, and a period later it hands half of that back. PRIMA goes to 63 and 37%, 20 and 16 ms, both within in the mean. Windows of five seconds still vary by a tenth around that, which is why either has some in violation. HAProxy's round robin adds to LR's mistakes at times: after a large change of weights it may pass a server over for seconds (docs/balancers/haproxy.md).",
	"reaction":             "Aim met. An instance counts as disturbed in the first period that the neighbour fills, and is relieved in the next (W = 1).",
	"probing":              "Aim met: 8 downloads of 50 KB, 2% of the link, err less than one of 1 MB at 5%. Downloads of 25 KB and less err more than those of 50 KB, for part of each passes in the shaper's burst.",
	"table-vi":             "As in the paper in sizes: one instance at the first load, two at the higher one, one again, and two beside neighbours now and then. Video load varies much from one second to the next, so instances come and go more often than at T = 10 s, and a window around each change is in violation.",
	"table-vii-exp":        "As in the paper in direction: far above the threshold as the neighbours come, then near it, on the host whose neighbour takes 0.2 (up to 15 ms in the last half minute where 12 are allowed). Ten probes a second beside bursts of video cannot tell so weak a neighbour from chance in each period; the paper has ten times as long for it. Calibration, which is off here as in the paper, is for that.",
	"table-vii-det":        "As in the paper: far above the threshold as the neighbours come, then near it and within it at the end. (Severity that was missing for one reading used to give the first instance everything back; it must be missing for W + 1 now.)",
	"table-vii-ramp":       "Better than the paper: two instances on undisturbed hosts, within the threshold at the end; the surge itself is above it.",
	"table-vii-calibrated": "Within the threshold at the end, as without calibration: nothing is left to correct once the instances are on undisturbed hosts.",
	"table-viii-x":         "As in the paper in sizes and order: one, two, three and four instances as the load grows; more when neighbours come, with less for those that suffer; fewer when they go.",
}
