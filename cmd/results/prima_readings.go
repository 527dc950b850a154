package main

// readings say, for each part of the page, how what was measured compares with the paper and why: they belong to the
// figures that are on the page, and are read again whenever these are measured anew.
var readings = map[string]string{
	"table-ii": "The joint model is the default for what is seen here: the paper's one curve over the total errs five times as much, because on a link that is shared equally " +
		"one total belongs to many severities. The response-time model's largest error lies where little load meets a strong neighbour and the curves are steep; it is to the safe side.",
	"plans": "The adaptive plan needs fewer runs for the same capacity: 60 of its runs err no more than 129 of the grid. Its interference model is worse over all points, 14% against 5%, since it " +
		"leaves alone what lies far from the threshold.",
	"table-iii": "As in the paper: the same rates, and the disturbed instance takes three and a half times as long. PRIMA adds instances and takes the disturbed one out.",
	"table-iv": "As in the paper in kind: the disturbed instance gets fewer requests and still takes nearly three times as long. Few connections are open at a time here, so most requests find " +
		"both servers idle, and least connections then shares like round robin.",
	"fig-2": "LSF as in the paper: a second instance, equal shares, both within the threshold. PRIMA does with one: of the instances that it tries it keeps the one without a neighbour, which the paper's " +
		"two sockets did not have.",
	"fig-3": "Another outcome than the paper's, in kind: once the second instance shares the load equally neither violates, and LSF acts on violations only, so it never sends three times the load " +
		"anywhere. On a link shared equally severity is u / (1 - U - u) and falls with the instance's own load: what was 0.75 at 40% is a third of it at 20%. PRIMA finds an undisturbed host, as above.",
}
