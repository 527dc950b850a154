package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	orcadata "github.com/cncf/xds/go/xds/data/orca/v3"
	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"

	"github.com/quellhq/quell/internal/lifeline"
)

// useReports answers Envoy as a server without Quell does: with its requests per second and its own use of its link.
type useReports struct {
	orcaservice.UnimplementedOpenRcaServiceServer
	task clusterTask
}

// frontsUsePort is the port of these reports.
const frontsUsePort = "9470"

// reportUse serves load reports at an address until it is asked to end.
func reportUse(task clusterTask) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel, _, err := lifeline.Tie(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	ln, err := net.Listen("tcp", task.Config)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	orcaservice.RegisterOpenRcaServiceServer(s, useReports{task: task})
	context.AfterFunc(ctx, s.Stop)
	return s.Serve(ln)
}

// StreamCoreMetrics implements the service.
func (u useReports) StreamCoreMetrics(ask *orcaservice.OrcaLoadReportRequest, to orcaservice.OpenRcaService_StreamCoreMetricsServer) error {
	every := max(time.Second, ask.GetReportInterval().AsDuration())
	before, err := u.read()
	for err == nil {
		if err = wait(to.Context(), every); err != nil {
			break
		}
		var now useCounts
		if now, err = u.read(); err != nil {
			break
		}
		err = to.Send(reportOf(before, now, u.task.Bits))
		before = now
	}
	return err
}

// useCounts are what a machine had served and sent at a time.
type useCounts struct {
	at       time.Time
	requests float64
	bytes    float64
}

// reportOf says what was used between two times of a link with this many bits per second.
func reportOf(before, now useCounts, link float64) *orcadata.OrcaLoadReport {
	s := now.at.Sub(before.at).Seconds()
	const own = 1 // the request that asked nginx
	return &orcadata.OrcaLoadReport{RpsFractional: max(0, now.requests-before.requests-own) / s,
		ApplicationUtilization: (now.bytes - before.bytes) * 8 / link / s}
}

// served finds the third number of nginx's stub_status: requests.
var served = regexp.MustCompile(`(?m)^ \d+ \d+ (\d+)`)

func (u useReports) read() (c useCounts, err error) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(u.task.URL)
	if err != nil {
		return c, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return c, err
	}
	found := served.FindSubmatch(text)
	if found == nil {
		return c, fmt.Errorf("%s says %q", u.task.URL, text)
	}
	c.at = time.Now()
	c.requests, _ = strconv.ParseFloat(string(found[1]), 64)
	c.bytes, err = sentBytes("eth0")
	return c, err
}

// sentBytes is what an interface of this place has sent.
func sentBytes(name string) (float64, error) {
	file, err := os.Open("/proc/self/net/dev")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return sentBy(file, name)
}

func sentBy(from io.Reader, name string) (float64, error) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		if at, counts, found := strings.Cut(strings.TrimSpace(lines.Text()), ":"); found && at == name {
			if words := strings.Fields(counts); len(words) > 8 {
				return strconv.ParseFloat(words[8], 64)
			}
		}
	}
	return 0, fmt.Errorf("there is no interface %s", name)
}
