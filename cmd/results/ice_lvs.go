package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// lvsPhase is a phase of the play of ICE over IPVS, as balancer/lvs's test TestICEOverLVS writes it. Keys of the maps are addresses of
// servers; the first one is disturbed.
type lvsPhase struct {
	Name     string             `json:"name"`
	FromS    float64            `json:"from_s"`
	UntilS   float64            `json:"until_s"`
	Requests map[string]int     `json:"requests"`
	MedianMS map[string]float64 `json:"median_ms"`
	P90MS    map[string]float64 `json:"p90_ms"`
	Failed   int                `json:"failed"`
	CutS     *float64           `json:"cut_s,omitempty"`
	Least    *float64           `json:"least,omitempty"`
	BackS    *float64           `json:"back_s,omitempty"`
}

// playICEOverLVS plays ICE over IPVS in the virtual machine of the driver's tests.
func playICEOverLVS(ctx context.Context) (phases []lvsPhase, err error) {
	dir, err := os.MkdirTemp("", "quell-ice-lvs")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "figures.json")
	cmd := exec.CommandContext(ctx, "go", "test", "./balancer/lvs", "-run", "TestICEOverLVS$", "-count", "1", "-timeout", "30m")
	cmd.Env = append(os.Environ(), "QUELL_ICE_LVS="+out)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, said)
	}
	found, err := readJSON(out, &phases)
	if err == nil && !found {
		err = fmt.Errorf("nothing was played: run make guest, as root on Debian")
	}
	return phases, err
}

// LVSText says how many neighbours led to a cut.
func (f *iceFigures) LVSText() string {
	came, cut := 0, 0
	for _, p := range f.LVS {
		if !strings.HasPrefix(p.Name, "neighbour ") {
			continue
		}
		if came++; p.CutS != nil {
			cut++
		}
	}
	return fmt.Sprintf("%d of %d neighbours led to a cut", cut, came)
}

// Row is the phase's row on the page.
func (p lvsPhase) Row() string {
	cells := []string{p.Name}
	servers := slices.Sorted(maps.Keys(p.Requests))
	for _, s := range servers {
		cells = append(cells, fmt.Sprintf("%d", p.Requests[s]))
	}
	for _, s := range servers {
		cells = append(cells, fmt.Sprintf("%.0f", p.MedianMS[s]))
	}
	for _, s := range servers {
		cells = append(cells, fmt.Sprintf("%.0f", p.P90MS[s]))
	}
	cells = append(cells, fmt.Sprint(p.Failed))
	for _, v := range []*float64{p.CutS, p.Least, p.BackS} {
		if v == nil {
			cells = append(cells, "-")
		} else if v == p.Least {
			cells = append(cells, percent(*v))
		} else {
			cells = append(cells, fmt.Sprintf("%.1f s", *v))
		}
	}
	return "| " + strings.Join(cells, " | ") + " |"
}
