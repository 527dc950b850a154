package builtin

import (
	"context"
	"net/http"
	"time"

	"github.com/quellhq/quell/balancer/measure"
)

// bad returns whether the instance failed or refused the request. Then a short time says nothing good about it.
func (r *result) bad() bool {
	return r.verdict == measure.Failure || r.verdict == measure.Shed || r.verdict == measure.Limited
}

// settle notes whether the response is a stream or an upgraded connection, which no longer counts as an open request.
func (x *exchange) settle(resp *http.Response) {
	x.stream = measure.IsStream(resp.Header.Get("Content-Type"))
	if x.endless = x.stream || resp.StatusCode == http.StatusSwitchingProtocols; x.endless {
		x.backend.meter.requestSettled(x.begun)
	} else {
		x.backend.meter.requestAnswered()
	}
}

// result judges how the request ended, by the rules of package measure.
func (x *exchange) result(now time.Time, client context.Context) result {
	e := x.ended(now, client)
	r := result{
		class: x.class, code: codeClass(x.status), verdict: measure.Judge(e), took: now.Sub(x.arrived),
		endless: x.endless, answered: !x.begun.IsZero(),
	}
	if x.firstByte && !x.begun.IsZero() {
		r.took = x.begun.Sub(x.arrived)
	}
	if x.refused && client.Err() != nil || !x.refused && !x.whole {
		r.code = codeAborted
	}
	return r
}

// ended describes how the request ended.
func (x *exchange) ended(now time.Time, client context.Context) measure.Ending {
	e := measure.Ending{
		Status: x.status, Waited: x.waited(now), Patience: x.patience, Moved: x.moved, Stream: x.stream, Aside: x.aside, FirstByte: x.firstByte,
		Phase: measure.InWaiting,
	}
	upload := x.upload != nil && x.upload.broken.Load()
	switch {
	case x.refused && upload, x.refused && x.status < 500:
		e.By, e.Phase = measure.ByClient, measure.InUpload
	case x.refused && client.Err() != nil:
		e.By = measure.ByClient
	case x.refused && x.own:
		e.By = measure.ByBalancer
	case x.refused:
		e.By = measure.ByInstance
	case !x.whole && x.download != nil && x.download.broken.Load():
		e.By, e.Phase = measure.ByInstance, measure.InAnswer
	case !x.whole:
		e.By, e.Phase = measure.ByClient, measure.InAnswer
	}
	return e
}
