package balancertest

import (
	"context"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

type misspelt struct{}

func (misspelt) Close()                        {}
func (misspelt) Restore(context.Context) error { return nil }
func (misspelt) Other() int                    { return 0 }

func TestAMethodWithAnotherSignatureIsSaid(t *testing.T) {
	want := []string{"balancertest.misspelt.Restore is never called, because it is a func(context.Context) error: " +
		"make it a func(context.Context) ([]string, error)"}
	if got := unfound(misspelt{}, ofDriver); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestThePageNamesEveryMethod(t *testing.T) {
	page, err := os.ReadFile("../../docs/write-a-balancer-driver.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, methods := range []reflect.Type{ofDriver, ofSettings} {
		for i := range methods.NumMethod() {
			if name := methods.Method(i).Name; !strings.Contains(string(page), "`"+name+"(") {
				t.Errorf("docs/write-a-balancer-driver.md lacks the method %s", name)
			}
		}
	}
}
