package balancertest

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/setting"
)

// ofDriver are the methods that a driver may have beside those of balancer.Driver. docs/write-a-balancer-driver.md says what they are for.
var ofDriver = reflect.TypeFor[interface {
	Close()
	Disown(ctx context.Context) error
	IdleFirst() bool
	Inform(ctx context.Context, resource quell.Resource, capacity, use map[string]float64) error
	Lacks(instances []quell.Member) error
	Own(ctx context.Context, owner quell.Owner) error
	Release(ctx context.Context, id string) error
	Restore(ctx context.Context) (unknown []string, err error)
}]()

// ofSettings are the methods that settings may have beside those of balancer.Settings.
var ofSettings = reflect.TypeFor[interface {
	AwaitLog(ctx context.Context, s balancer.Service, period time.Duration) (string, error)
	CheckHealth(ctx context.Context, address string) (asked string, err error)
	CheckObjective(d *setting.Decoder, metric quell.Metric)
	CheckPlaces(d *setting.Decoder)
	Distributes() quell.Scheduling
	Files(data string) []*string
	IdleFirst() bool
	LogAt() string
	Manages() []string
	Measure(driver balancer.Driver, s balancer.Service, publish func([]quell.Reading)) (balancer.Meter, error)
	Notes() []string
	OwnBackends(ownMembers bool) bool
	Parts(s balancer.Service) []balancer.Part
}]()

// Settings tests that the program finds the methods that settings have beside those of balancer.Settings.
func Settings(t *testing.T, s balancer.Settings) {
	t.Helper()
	for _, problem := range unfound(s, ofSettings) {
		t.Error(problem)
	}
}

// unfound describes the methods that the program would look for in vain. It finds them by name and signature, so one of the name with
// another signature is never called, and nothing else says so.
func unfound(v any, known reflect.Type) (problems []string) {
	for i := range known.NumMethod() {
		want := known.Method(i)
		has := reflect.ValueOf(v).MethodByName(want.Name)
		if has.IsValid() && has.Type() != want.Type {
			problems = append(problems, reflect.TypeOf(v).String()+"."+want.Name+" is never called, because it is a "+has.Type().String()+
				": make it a "+want.Type.String())
		}
	}
	return problems
}
