package measure

import (
	"slices"
	"strings"
	"time"
)

// Verdict is what a request counts as. Everything but Nothing is demand: the instance was asked for it.
type Verdict int

// The verdicts.
const (
	Response Verdict = iota // its time is a response time
	Failure                 // the instance failed
	Shed                    // the instance refused it to protect itself: neither a failure nor a response time
	Limited                 // the same, because its client asks too often: this is no sign of an instance's trouble
	Demand                  // it says nothing about how fast or how well the instance answers
	Nothing                 // it is not the instance's
)

// String returns the verdict as docs/what-counts.md calls it.
func (v Verdict) String() string {
	return [...]string{"response", "failure", "shed", "shed (limited)", "demand only", "nothing"}[v]
}

// Ender is who ended a request.
type Ender int

// The enders. ByBalancer means that the instance has no part in it.
const (
	ByNobody   Ender = iota // the response was complete
	ByClient                // it left, sent a broken request, or let its own time limits pass
	ByInstance              // no connection, no answer in time, a broken or an invalid answer
	ByBalancer              // the balancer refused it, answered it itself, or had an error of its own
	ByPerson                // somebody closed its connection at the balancer
)

// Phase is how far a request had come when it ended.
type Phase int

// The phases, in their order.
const (
	InQueue   Phase = iota // waiting at the balancer
	InUpload               // the client was still sending
	InWaiting              // for the connection to the instance, or for its answer
	InAnswer               // the response had begun
)

// Patience is how long a client must have waited before its leaving counts as a failure, if the balancer knows no time limit of health
// checks.
const Patience = time.Second

// Ending is how a request ended, as far as a balancer knows.
type Ending struct {
	By       Ender
	Phase    Phase         // unless By is ByNobody
	Status   int           // of the response; 0: there was none
	Waited   time.Duration // since the instance got the request
	Patience time.Duration // see Patience
	Moved    bool          // another instance was tried before
	Stream   bool          // the response is a stream by its media type
	Aside    bool          // its class is not part of the objective
	Early    bool          // only the beginning of the response was seen

	FirstByte bool // the objective is about the time to the first byte of the response
}

// left returns whether the client ended the request in a phase.
func (e *Ending) left(in Phase) bool { return e.By == ByClient && e.Phase == in }

// Rule is a rule about what counts. The first rule that applies decides.
type Rule struct {
	Name    string
	Verdict Verdict
	Because string
	// HAProxy and Builtin say where each balancer shows this case.
	HAProxy, Builtin string
	applies          func(e *Ending) bool
}

// Rules are all rules in their order. docs/what-counts.md is made from them.
var Rules = []Rule{
	{"the balancer itself refused or answered it", Nothing, "the instance never saw it",
		"`PR`, `PC`, `PQ`, `RC`, `IC`, `LR` and all lines of `<NOSRV>`", "no instance is available; no file descriptor is left",
		func(e *Ending) bool { return e.By == ByBalancer && e.Phase != InQueue }},
	{"it waited too long in the balancer's queue", Demand, "the instance was wanted, but never asked",
		"`sQ`", "-",
		func(e *Ending) bool { return e.By == ByBalancer }},
	{"somebody closed its connection", Demand, "that is nobody's fault",
		"`K` (`shutdown sessions`), `U`", "-",
		func(e *Ending) bool { return e.By == ByPerson }},
	{"the client left the balancer's queue", Demand, "the instance was wanted, but never asked",
		"`CQ`, `cQ`", "-",
		func(e *Ending) bool { return e.left(InQueue) }},
	{"the client broke off or delayed its request", Demand, "the instance waited for the client",
		"`CR`, `cR`, `cH`", "the upload broke off or came too late",
		func(e *Ending) bool { return e.left(InUpload) }},
	{"the client left before the response began, and had waited long", Failure, "an instance that hangs shows no other sign",
		"`CC`, `CH`, after 1 s or more since the server got it", "after `balancer.health.timeout` or more",
		func(e *Ending) bool { return e.left(InWaiting) && e.Waited >= e.Patience }},
	{"the client left before the response began", Demand, "people type on, scroll on and close pages",
		"`CC`, `CH`, sooner", "sooner",
		func(e *Ending) bool { return e.left(InWaiting) }},
	{"the client left during the response", Demand, "it paces or breaks off downloads as it likes",
		"`CD`, `cD`, `CL`", "the client's connection ended during the response",
		func(e *Ending) bool { return e.left(InAnswer) && !e.FirstByte }},
	{"the instance failed", Failure, "it gave no connection, no answer in time, or no valid and whole one",
		"`SC`, `sC`, `SH`, `sH`, `SD`, `sD`, `PH`, `PD`, `D`", "502, 503 (no connection), 504, or a response that broke off",
		func(e *Ending) bool { return e.By == ByInstance }},
	{"it is answered 503", Shed, "a fast refusal is no fast success",
		"the status", "the status",
		func(e *Ending) bool { return e.Status == 503 }},
	{"it is answered 429", Limited, "the same, but its client asks too often: no instance is cut for that",
		"the status", "the status",
		func(e *Ending) bool { return e.Status == 429 }},
	{"it is answered with another status from 500 on, or with none below 100", Failure, "the client did not get what it asked for",
		"the status", "the status",
		func(e *Ending) bool { return e.Status >= 500 || e.Status < 100 }},
	{"it is upgraded to another protocol (101)", Demand, "the connection lasts as long as its ends like",
		"the status", "the status",
		func(e *Ending) bool { return e.Status == 101 }},
	{"another instance was tried before", Demand, "its time includes the time there; the attempt counts as failed there",
		"`+` before the retries, as in `+3`", "a connection could not be opened",
		func(e *Ending) bool { return e.Moved }},
	{"its class is not part of the objective", Demand, "`balancer.classes[].objective: false` says so",
		"the path", "the path",
		func(e *Ending) bool { return e.Aside }},
	{"its response is a stream", Demand, "it lasts as long as there is something to tell",
		"a captured response header `Content-Type`", "`Content-Type`",
		func(e *Ending) bool { return e.Stream && !e.FirstByte }},
	{"only its beginning was seen", Demand, "its response time is not known",
		"`option logasap`", "-",
		func(e *Ending) bool { return e.Early && !e.FirstByte }},
	{"any other", Response, "also 4xx and redirects: the instance answered", "the rest", "the rest",
		func(*Ending) bool { return true }},
}

// Judge returns what a request counts as.
func Judge(e Ending) Verdict { return Rules[e.rule()].Verdict }

// endless returns whether a request lasts as long as its ends like, so that the time for which it was open is no load.
func (e *Ending) endless() bool { return e.Status == 101 || e.Stream && !e.FirstByte }

// rule returns the position of the rule that decides.
func (e *Ending) rule() int {
	for i := range Rules {
		if Rules[i].applies(e) {
			return i
		}
	}
	return len(Rules) - 1 // the last one applies to every request
}

// Streams are the media types of responses that are streams.
var Streams = []string{"text/event-stream", "multipart/x-mixed-replace", "application/x-ndjson"}

// IsStream returns whether a response's Content-Type says that it is a stream.
func IsStream(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return slices.Contains(Streams, strings.ToLower(strings.TrimSpace(kind)))
}
