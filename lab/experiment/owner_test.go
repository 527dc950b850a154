package experiment

import (
	"errors"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/train"
)

// madeUp are fake machines that do what the test tells them.
type madeUp struct {
	use, own  map[quell.Resource]float64
	strengths map[kernel.Program]float64
}

func (m *madeUp) Run(_ string, strengths map[kernel.Program]float64) error {
	m.strengths = strengths
	return nil
}

func (m *madeUp) Interfere(host string, use map[quell.Resource]float64) error {
	if host != "h1" {
		return errors.New("there is no host " + host)
	}
	m.use = use
	return nil
}

func (m *madeUp) Work(_ string, use map[quell.Resource]float64) error {
	m.own = use
	return nil
}

func (m *madeUp) Carried(string, quell.Resource) (train.Carried, error) {
	return train.Carried{Own: 1.5, Interfering: 0.25}, nil
}

func TestMachinesAcrossProcesses(t *testing.T) {
	mine, theirs, err := MachinesPair()
	if err != nil {
		t.Fatal(err)
	}
	machines := &madeUp{}
	served := make(chan error, 1)
	go func() { served <- ServeMachines(mine, machines) }()
	m, gone, err := ConnectMachines(theirs)
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if err := m.Interfere("h1", map[quell.Resource]float64{quell.Network: 0.3, quell.CPU: 0.1}); err != nil {
		t.Fatal(err)
	}
	if machines.use[quell.Network] != 0.3 || machines.use[quell.CPU] != 0.1 {
		t.Errorf("the machines got %v", machines.use)
	}
	if err := m.Work("h1", map[quell.Resource]float64{quell.Disk: 0.5}); err != nil || machines.own[quell.Disk] != 0.5 {
		t.Errorf("the instance's own work is %v, %v", machines.own, err)
	}
	if err := m.Run("h1", map[kernel.Program]float64{kernel.Sort: 0.5}); err != nil || machines.strengths[kernel.Sort] != 0.5 {
		t.Errorf("the machines run %v, %v", machines.strengths, err)
	}
	if c, err := m.Carried("h1", quell.Network); err != nil || c.Own != 1.5 || c.Interfering != 0.25 {
		t.Errorf("carried %+v, %v", c, err)
	}
	if err := m.Interfere("h7", nil); err == nil || !strings.Contains(err.Error(), "no host h7") {
		t.Errorf("a host that is not there: %v", err)
	}
	m.(*remoteMachines).client.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	<-gone
	if err := m.Interfere("h1", nil); err == nil {
		t.Error("a call after the end succeeded")
	}
}
