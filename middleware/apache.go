package middleware

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/quellhq/quell/internal/program"
)

// Apache is Apache httpd. USR1 is its graceful restart: processes that serve requests finish them.
var Apache = kindOf(&server{
	name: "apache", known: []string{"MaxRequestWorkers", "KeepAliveTimeout"}, programs: []string{"apache2", "httpd"},
	signal: syscall.SIGUSR1, check: []string{"apachectl", "-t"},
	line:   func(name string) string { return `(?mi)^([ \t]*` + name + `[ \t]+)([^ \t\r\n]+)([ \t\r]*)$` },
	module: apacheModule,
}, "MaxRequestWorkers and KeepAliveTimeout (seconds) of Apache httpd")

var (
	sharedModule = regexp.MustCompile(`/mod_mpm_([a-z0-9]+)\.so`)
	builtModule  = regexp.MustCompile(`(?m)^Server MPM: +([A-Za-z0-9]+)`)
)

// apacheModule returns the multi-processing module (MPM) of a running Apache, such as event: that of its shared modules, or the one that
// its program was built with.
func apacheModule(ctx context.Context, pid int) (string, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return "", err
	}
	if found := sharedModule.FindSubmatch(maps); found != nil {
		return string(found[1]), nil
	}
	printed, err := program.Run(ctx, []string{fmt.Sprintf("/proc/%d/exe", pid), "-V"}, nil, commandLimits)
	if err != nil {
		return "", err
	}
	return builtWith(printed)
}

// builtWith finds the multi-processing module in what Apache's option -V prints.
func builtWith(printed []byte) (string, error) {
	found := builtModule.FindSubmatch(printed)
	if found == nil {
		return "", errors.New("its option -V does not say with which multi-processing module it was built")
	}
	return strings.ToLower(string(found[1])), nil
}

// apacheBlock begins or ends a block that counts if a module is there.
var apacheBlock = regexp.MustCompile(`(?i)^[ \t]*<(/?)IfModule(?:[ \t]+"?(!?)(?:mpm_)?([a-z0-9_]+?)(?:_module|\.c)"?)?[ \t]*>`)

// mpmModules are the multi-processing modules. One runs at a time.
var mpmModules = map[string]bool{"prefork": true, "worker": true, "event": true, "netware": true, "winnt": true, "mpmt_os2": true}

// excluded returns whether a place in a file lies in a block that does not count while a multi-processing module runs.
func excluded(content string, at int, module string) bool {
	var counts []bool // by the blocks around the place
	for line := range strings.Lines(content[:at]) {
		found := apacheBlock.FindStringSubmatch(line)
		switch {
		case found == nil:
		case found[1] == "/":
			counts = counts[:max(0, len(counts)-1)]
		default:
			name := strings.ToLower(found[3])
			counts = append(counts, !mpmModules[name] || (name == module) != (found[2] == "!"))
		}
	}
	return slices.Contains(counts, false)
}
