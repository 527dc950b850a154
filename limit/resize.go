package limit

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Containers are the containers of the pods of Kubernetes on this machine, by NAMESPACE/POD/CONTAINER. The kubelet owns their control
// groups, so their limits are changed through the API.
type Containers interface {
	// Limit returns a container's limit, in thousandths of a processor, and a number that tells its pod from a later one of the same name. If
	// there is no such pod, the error is fs.ErrNotExist.
	Limit(container string) (millis int64, pod uint64, err error)
	// SetLimit changes a limit from one value to another. If it is not the former any more, nothing is changed and there is an error.
	SetLimit(container string, from, to int64) error
	// Ours returns whether nobody has changed the limit since SetLimit did.
	Ours(container string) bool
}

// LeastMillis is the least limit that a kubelet carries out as it is: a quota of a millisecond in each period of the kernel.
const LeastMillis = 10

// resize limits processors of one container of a pod. Settings are as the API writes them, in thousandths of a processor: "500m".
type resize struct {
	containers Containers
	seen       int64 // the limit that was read last
}

func newResize(o Options) (kind, error) {
	if o.Containers == nil {
		return nil, errors.New("it is a pod's: the agent of its node puts it back when it starts (quell agent --node)")
	}
	return &resize{containers: o.Containers}, nil
}

func (r *resize) unit() string { return "processors" }

func (r *resize) read(container string) (setting, error) {
	millis, _, err := r.containers.Limit(container)
	r.seen = millis
	return millisText(millis), err
}

func (r *resize) write(container string, s setting) error {
	to, err := parseMillis(s)
	if err != nil {
		return err
	}
	return r.containers.SetLimit(container, r.seen, to)
}

// to never exceeds what was there before: that is the owner's.
func (r *resize) to(processors float64, before setting) setting {
	most, err := parseMillis(before)
	if err != nil {
		return before
	}
	return millisText(min(max(int64(math.Round(min(processors, math.MaxInt32)*1000)), LeastMillis), most))
}

func (r *resize) value(s setting) (float64, bool) {
	millis, err := parseMillis(s)
	return float64(millis) / 1000, err == nil
}

func (r *resize) identity(container string) (uint64, error) {
	millis, pod, err := r.containers.Limit(container)
	r.seen = millis
	return pod, err
}

// changed returns whether somebody else has changed a limit.
func (r *resize) changed(container string) bool { return !r.containers.Ours(container) }

func millisText(millis int64) setting { return setting(strconv.FormatInt(millis, 10) + "m") }

func parseMillis(s setting) (int64, error) {
	return strconv.ParseInt(strings.TrimSuffix(string(s), "m"), 10, 64)
}
