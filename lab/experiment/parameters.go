package experiment

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/middleware"
)

// configure returns the path of the agent's configuration. On an instance of the calendar it is a copy of the service's configuration that
// also lists the parameters of the calendar's servers. Their files are made then, because agents look at them when they start.
func (i Instance) configure(service instanceService) (path string, err error) {
	calendar, ok := service.(*kernel.Calendar)
	if !ok || i.Training {
		return i.Config, nil
	}
	if err := errors.Join(calendar.Prepare(), forgetChanges(calendar.Dir)); err != nil {
		return "", err
	}
	file, err := daemon.Drivers().Load(i.Config)
	if err != nil {
		return "", err
	}
	if file.Agent.Servers, err = calendarServers(calendar); err != nil {
		return "", err
	}
	path = filepath.Join(calendar.Dir, "quell.yaml")
	return path, os.WriteFile(path, []byte(written(file)), 0o600)
}

// forgetChanges removes what agents that were killed in an earlier run recorded of their changes. The files have been written anew since:
// the next agent would take them for files that somebody edited, and not change them.
func forgetChanges(dir string) error {
	records, err := filepath.Glob(filepath.Join(dir, ".*.quell-original"))
	for _, path := range records {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// calendarServers are the calendar's servers with the bounds of their parameters. Apache starts with 100 workers, which close a connection
// after 5 s without a request, and PHP with 8 processes.
func calendarServers(c *kernel.Calendar) ([]middleware.Server, error) {
	program, err := kernel.FindPHP()
	if err != nil {
		return nil, err
	}
	web, apache := c.Apache(), middleware.Apache.Defaults()
	apache.PID, apache.Check = web.PID, []string{"apache2", "-t", "-f", web.Main}
	apache.Parameters = []middleware.Parameter{
		{Name: "MaxRequestWorkers", Min: 25, Max: 200, File: web.Parameters["MaxRequestWorkers"]},
		{Name: "KeepAliveTimeout", Min: 1, Max: 15, File: web.Parameters["KeepAliveTimeout"]},
	}
	manager, php := c.PHP(), middleware.PHPFPM.Defaults()
	php.PID, php.File = manager.PID, manager.Main
	php.Check = []string{program, "-n", "-R", "-t", "-y", "{file}"} // -R: the check runs as root, PHP itself does not
	php.Parameters = []middleware.Parameter{{Name: "pm.max_children", Min: 2, Max: 32}}
	return []middleware.Server{{Kind: middleware.Apache.Name, Settings: apache}, {Kind: middleware.PHPFPM.Name, Settings: php}}, nil
}
