//go:build !linux

package kernel

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"runtime"
	"time"

	"github.com/quellhq/quell"
)

// The lab needs Linux. On other systems every function returns an error.

func errNotLinux() error {
	return userErrorf("the kernel lab needs Linux; this is %s", runtime.GOOS)
}

// Lab is a set of physical machines in one kernel.
type Lab struct{}

// Machine is one physical machine of a lab.
type Machine struct{}

// Nginx is a web server in a place.
type Nginx struct {
	Place Place
	Dir   string
	Port  int
	Files map[string]int64
	server
}

// Worker is the service of dynamic work in a place.
type Worker struct {
	Place   Place
	Dir     string
	Port    int
	Program string
	Disk    bool
	Memory  bool
	Workers int
	Wait    time.Duration
	Number  string
	server
}

// Calendar is an event calendar in a place.
type Calendar struct {
	Place Place
	Dir   string
	Port  int
	Data  string
	Disk  bool
	server
}

// CheckCalendar fails.
func CheckCalendar() error { return errNotLinux() }

// FindPHP fails.
func FindPHP() (string, error) { return "", errNotLinux() }

// MakeCalendar fails.
func MakeCalendar(context.Context, string) error { return errNotLinux() }

// Start fails.
func (c *Calendar) Start(context.Context) error { return errNotLinux() }

// Prepare fails.
func (c *Calendar) Prepare() error { return errNotLinux() }

type server struct{}

// Check fails.
func Check(...string) error { return errNotLinux() }

// SetErring fails.
func SetErring(string, bool) error { return errNotLinux() }

// CheckDisk fails.
func CheckDisk(string) error { return errNotLinux() }

// New fails.
func New(Options) (*Lab, error) { return nil, errNotLinux() }

// Clean fails.
func Clean(string) ([]string, error) { return nil, errNotLinux() }

// Close does nothing.
func (l *Lab) Close() error { return nil }

// Machine returns nil.
func (l *Lab) Machine(string) *Machine { return nil }

// Place fails.
func (l *Lab) Place(string, Role) (Place, error) { return Place{}, errNotLinux() }

// Start fails.
func (p Place) Start(*exec.Cmd) error { return errNotLinux() }

// Do fails.
func (p Place) Do(func() error) error { return errNotLinux() }

// Dial connects from the place.
func (p Place) Dial(context.Context, string, string) (net.Conn, error) { return nil, errNotLinux() }

// SinglePackets fails.
func (p Place) SinglePackets() error { return errNotLinux() }

// Interfere fails.
func (m *Machine) Interfere(map[quell.Resource]float64) error { return errNotLinux() }

// Benchmark fails.
func (m *Machine) Benchmark(context.Context, quell.Resource, time.Duration) (float64, error) {
	return 0, errNotLinux()
}

// Work fails.
func (m *Machine) Work(map[quell.Resource]float64) error { return errNotLinux() }

// Run fails.
func (m *Machine) Run(map[Program]float64) error { return errNotLinux() }

// CheckProgram fails.
func CheckProgram(Program) error { return errNotLinux() }

// KeepCredits fails.
func (b Burstable) KeepCredits(context.Context) error { return errNotLinux() }

// Carried fails.
func (m *Machine) Carried() (own, interfering float64, err error) { return 0, 0, errNotLinux() }

// CPUCarried fails.
func (m *Machine) CPUCarried() (own, interfering float64, err error) { return 0, 0, errNotLinux() }

// MemoryCarried fails.
func (m *Machine) MemoryCarried() (own, interfering float64, err error) { return 0, 0, errNotLinux() }

// DiskCarried fails.
func (m *Machine) DiskCarried() (own, interfering float64, err error) { return 0, 0, errNotLinux() }

// Start fails.
func (n *Nginx) Start(context.Context) error { return errNotLinux() }

// Start fails.
func (w *Worker) Start(context.Context) error { return errNotLinux() }

// Start fails.
func (v *Vsftpd) Start(context.Context) error { return errNotLinux() }

// Stop does nothing.
func (s *server) Stop(context.Context) error { return nil }

// Failed returns nil.
func (s *server) Failed() error { return nil }

// Done returns nil.
func (s *server) Done() <-chan struct{} { return nil }

func threadTime() (time.Duration, error) { return 0, errors.ErrUnsupported }

type disk struct{}

func openDisk(string) (*disk, error) { return nil, errNotLinux() }

func (d *disk) read(context.Context, int64) error { return errors.ErrUnsupported }
