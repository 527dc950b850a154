package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Calendar is an event calendar in a place: Apache, PHP and a database of its own. Its pages need processor time (TagSearch), the disk and
// many bytes (EventDetail), or little of all (HomePage). It answers GET /healthz as well.
type Calendar struct {
	Place Place
	Dir   string // for configuration, pages, data and logs; each calendar needs its own
	Port  int    // 0 means 80
	Data  string // made by MakeCalendar; it is copied, and may be shared by several calendars
	Disk  bool   // each visit of EventDetail is a disk operation; the disk of Dir must allow writes past the cache

	servers []*calendarServer
	sockets string
	done    chan struct{}
}

// calendarServer is one of the calendar's programs.
type calendarServer struct {
	name string
	server
}

// CheckCalendar returns, as a *quell.UserError, which programs of the calendar are missing.
func CheckCalendar() error {
	_, noPHP := FindPHP()
	_, noPostgres := findPostgres("postgres")
	return errors.Join(needPrograms("apache2"), noPHP, noPostgres)
}

// FindPHP returns the path of PHP's process manager. PHP must have the extension for PostgreSQL.
func FindPHP() (program string, err error) {
	managers, _ := filepath.Glob("/usr/sbin/php-fpm*")
	drivers, _ := filepath.Glob("/usr/lib/php/*/pdo_pgsql.so")
	if len(managers) == 0 || len(drivers) == 0 {
		return "", userErrorf("the calendar needs php-fpm with PDO for PostgreSQL, which is not installed; on Debian: " +
			"apt-get install php-fpm php-pgsql")
	}
	return managers[len(managers)-1], nil
}

// MakeCalendar makes the data of the calendar in a folder, unless it is there already.
func MakeCalendar(ctx context.Context, dir string) error {
	statements, err := calendarFiles.ReadFile(calendarFolder + "/calendar.sql")
	if err != nil {
		return err
	}
	return makeCluster(ctx, dir, statements)
}

// Start starts database, PHP and Apache, and returns when every page has been answered once. A missing program is a *quell.UserError.
func (c *Calendar) Start(ctx context.Context) (err error) {
	if c.done != nil {
		return errors.New("this calendar has been started already")
	}
	if err := CheckCalendar(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Grace)
			defer cancel()
			err = errors.Join(err, c.Stop(ctx))
		}
	}()
	if err := c.Prepare(); err != nil {
		return err
	}
	for _, start := range []func(context.Context) error{c.startDatabase, c.startPHP, c.startApache, c.visit} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	c.watch()
	return nil
}

// Prepare copies the data, and writes pages and configurations, unless that was done before. Start does it, too. Stop removes the data.
func (c *Calendar) Prepare() error {
	if c.sockets != "" {
		return nil
	}
	if c.Port == 0 {
		c.Port = 80
	}
	if err := c.write(); err != nil {
		return fmt.Errorf("preparing the calendar: %w", err)
	}
	return nil
}

func (c *Calendar) write() (err error) {
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	if c.sockets, err = MakeRunDir(c.Place.prefix, "calendar"); err != nil {
		return err
	}
	pages := filepath.Join(c.Dir, "www", calendarFolder)
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	for _, page := range []string{"calendar.php", "HomePage.php", "TagSearch.php", "EventDetail.php"} {
		if err := c.file(filepath.Join(pages, page), page); err != nil {
			return err
		}
	}
	const poster = 75_000 // bytes; a third more in the page
	err = errors.Join(
		writeNoise(filepath.Join(pages, "poster.jpg"), poster),
		os.WriteFile(filepath.Join(c.Dir, "www", "healthz"), []byte("ok\n"), 0o644),
		c.file(c.Apache().Main, "apache.conf"),
		c.file(c.PHP().Main, "php-fpm.conf"),
		c.parameter("MaxRequestWorkers", 100),
		c.parameter("KeepAliveTimeout", 5),
		copyCluster(c.data(), c.Data),
		giveToNobody(c.sockets))
	return err
}

// data is the folder of the calendar's own copy of the data.
func (c *Calendar) data() string { return filepath.Join(c.Dir, "data") }

// file writes an embedded file, with this calendar's folders and address.
func (c *Calendar) file(path, name string) error {
	text, err := calendarFiles.ReadFile(calendarFolder + "/" + name)
	if err != nil {
		return err
	}
	filled := strings.NewReplacer("@SOCKETS@", c.sockets, "@ADDRESS@", fmt.Sprintf("%s:%d", c.Place.address, c.Port), "@DIR@", c.Dir)
	return os.WriteFile(path, []byte(filled.Replace(string(text))), 0o644)
}

// parameter writes one of Apache's parameters to a file of its own, which a policy may change.
func (c *Calendar) parameter(name string, value int) error {
	return os.WriteFile(c.Apache().Parameters[name], fmt.Appendf(nil, "%s %d\n", name, value), 0o644)
}

// add adds a server that is about to be started. Servers are stopped in reverse order.
func (c *Calendar) add(name string) *server {
	s := &calendarServer{name: name}
	c.servers = append(c.servers, s)
	return &s.server
}

func (c *Calendar) startDatabase(ctx context.Context) error {
	return cluster{place: c.Place, dir: c.Dir, data: c.data(), sockets: c.sockets, direct: c.Disk}.start(ctx, c.add("postgres"))
}

func (c *Calendar) startPHP(ctx context.Context) error {
	program, err := FindPHP()
	if err != nil {
		return err
	}
	args := []string{"-F", "-n", "-y", c.PHP().Main,
		"-d", "extension=pdo.so", "-d", "extension=pdo_pgsql.so", "-d", "zend_extension=opcache.so", "-d", "display_errors=0"}
	s := c.add("php-fpm")
	s.finish, s.force = syscall.SIGQUIT, syscall.SIGTERM
	return s.startUntil(ctx, func() (*process, error) { return c.launch("php-fpm", s.force, program, args...) },
		func(*process) bool { return accepts(filepath.Join(c.sockets, "fpm.sock")) })
}

func (c *Calendar) startApache(ctx context.Context) error {
	s := c.add("apache2")
	s.finish, s.force = syscall.SIGWINCH, syscall.SIGTERM
	return s.start(ctx, func() (*process, error) {
		return c.launch("apache2", s.force, "apache2", "-f", c.Apache().Main, "-DFOREGROUND")
	}, c.Port)
}

// launch starts one of the programs as nobody.
func (c *Calendar) launch(name string, last syscall.Signal, program string, args ...string) (*process, error) {
	cmd := exec.Command(program, args...)
	if err := asNobody(cmd); err != nil {
		return nil, err
	}
	return launchCommand(c.Place, c.Dir, name, last, cmd)
}

// accepts returns whether something accepts connections on a Unix socket.
func accepts(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// visit gets every page once, so that a page that cannot be answered is an error now, and compiling it delays no client.
func (c *Calendar) visit(ctx context.Context) error {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: c.Place.Dial, DisableKeepAlives: true}}
	for _, page := range []string{"HomePage", "TagSearch", "EventDetail"} {
		url := fmt.Sprintf("http://%s:%d%s", c.Place.address, c.Port, CalendarPage(page, 1))
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		reply, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("visiting the calendar: %w", err)
		}
		body, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if err != nil || reply.StatusCode != http.StatusOK {
			return errors.Join(fmt.Errorf("the calendar answers %s to %s: %s; see %s", reply.Status, page, lastOf(body), c.Dir), err)
		}
	}
	return nil
}

// watch closes done when one of the servers has ended.
func (c *Calendar) watch() {
	c.done = make(chan struct{})
	end := sync.OnceFunc(func() { close(c.done) })
	for _, s := range c.servers {
		go func() {
			<-s.Done()
			end()
		}()
	}
}

// Stop lets open requests finish until ctx ends, ends the servers, and removes the copy of the data. If the calendar does not run, that is
// no error.
func (c *Calendar) Stop(ctx context.Context) error {
	var errs []error
	for i := len(c.servers) - 1; i >= 0; i-- {
		errs = append(errs, c.servers[i].Stop(ctx))
	}
	if c.sockets != "" {
		errs = append(errs, os.RemoveAll(c.sockets), os.RemoveAll(c.data()))
	}
	return errors.Join(errs...)
}

// Done is closed when a server has ended, whether it was stopped or not. It is nil before Start.
func (c *Calendar) Done() <-chan struct{} { return c.done }

// Failed returns how servers ended, with the end of their output. It is nil while all run.
func (c *Calendar) Failed() error {
	var errs []error
	for _, s := range c.servers {
		errs = append(errs, s.Failed())
	}
	return errors.Join(errs...)
}
