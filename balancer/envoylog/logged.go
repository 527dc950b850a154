package envoylog

import (
	"time"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quellhq/quell/balancer/measure"
)

// logged is a request in an Envoy's access log.
type logged struct {
	open     bool   // it is still in progress: another entry comes when it has ended
	address  string // of the instance; empty: no instance had it
	unserved bool   // because none was healthy
	target   string
	end      measure.Ending
	request  measure.Request // its times, since it was sent to the instance
}

// read describes an entry of the log.
func read(e *accesslog.HTTPAccessLogEntry) logged {
	p, flags := e.GetCommonProperties(), e.GetCommonProperties().GetResponseFlags()
	sent := after(p.GetTimeToFirstUpstreamTxByte())
	l := logged{open: inProgress(p), address: Plain(p.GetUpstreamRemoteAddress()), target: e.GetRequest().GetPath(), request: measure.Request{
		First: max(0, after(p.GetTimeToFirstUpstreamRxByte())-sent), Took: max(0, after(p.GetTimeToLastUpstreamRxByte())-sent),
		Open: max(0, after(p.GetDuration())-sent)}}
	begun := p.GetTimeToFirstUpstreamRxByte() != nil
	l.end = measure.Ending{Status: int(e.GetResponse().GetResponseCode().GetValue()), Waited: l.request.Open, Patience: measure.Patience,
		Moved: p.GetUpstreamRequestAttemptCount() > 1, Stream: measure.IsStream(e.GetResponse().GetResponseHeaders()["content-type"])}
	if l.end.Phase = measure.InWaiting; begun {
		l.end.Phase = measure.InAnswer
	}
	l.end.By, l.unserved = endedBy(flags, begun), flags.GetNoHealthyUpstream()
	return l
}

// inProgress returns whether an entry is about something other than the end of a client's request: Envoy can also log its beginning and its
// progress, and each attempt at an instance.
func inProgress(p *accesslog.AccessLogCommon) bool {
	kind := p.GetAccessLogType()
	return kind != accesslog.AccessLogType_NotSet && kind != accesslog.AccessLogType_DownstreamEnd
}

// after returns a time since the request's start; 0 if it was not reached.
func after(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.AsDuration()
}

// endedBy translates Envoy's response flags.
func endedBy(f *accesslog.ResponseFlags, begun bool) measure.Ender {
	switch {
	case f.GetDownstreamConnectionTermination(), f.GetDownstreamRemoteReset(), f.GetDownstreamProtocolError(),
		f.GetStreamIdleTimeout() && begun:
		return measure.ByClient
	case f.GetUpstreamConnectionFailure(), f.GetUpstreamConnectionTermination(), f.GetUpstreamRemoteReset(),
		f.GetUpstreamRequestTimeout(), f.GetUpstreamProtocolError(), f.GetUpstreamMaxStreamDurationReached(), f.GetDurationTimeout(),
		f.GetStreamIdleTimeout(), f.GetLocalReset():
		return measure.ByInstance
	case f.GetUpstreamOverflow(), f.GetNoHealthyUpstream(), f.GetNoRouteFound(), f.GetRateLimited(), f.GetFaultInjected(),
		f.GetOverloadManager(), f.GetNoClusterFound(), f.GetResponseFromCacheFilter(), f.GetUnauthorizedDetails() != nil:
		return measure.ByBalancer
	}
	return measure.ByNobody
}
