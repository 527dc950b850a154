// Package webfile serves HTTP as a web configuration file of Prometheus's exporters says: by TLS, and with log-ins. Certificates, users and
// the file itself are read again for each connection or request, so a renewed certificate needs no restart.
package webfile

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/exporter-toolkit/web"
)

// inLine finds the line in an error of the YAML parser.
var inLine = regexp.MustCompile(`line (\d+): ([^\n]*)`)

// Check returns an error, with file and line, if a web configuration file or a certificate that it names cannot be used.
func Check(path string) error {
	err := web.Validate(path)
	if err == nil {
		return nil
	}
	if at := inLine.FindStringSubmatch(err.Error()); at != nil {
		return fmt.Errorf("%s:%s: %s", path, at[1], at[2])
	}
	if _, unread := os.Stat(path); unread != nil {
		return unread // names the file
	}
	return fmt.Errorf("%s: %w", path, err)
}

// TLS returns whether a file that Check accepts asks for TLS; "" is no file.
func TLS(path string) bool {
	settings := settingsOf(path)
	return settings.IsEnabled()
}

// Key returns the file with the private key that a file names; "" if it names none.
func Key(path string) string {
	settings := settingsOf(path)
	settings.SetDirectory(filepath.Dir(path))
	return settings.TLSKeyPath
}

func settingsOf(path string) web.TLSConfig {
	var file struct {
		TLS web.TLSConfig `yaml:"tls_server_config"`
	}
	text, err := os.ReadFile(path)
	if err != nil || yaml.Unmarshal(text, &file) != nil {
		return web.TLSConfig{}
	}
	return file.TLS
}

// Serve serves until the server is shut down, and closes the listener; without a file it is plain HTTP.
func Serve(path string, server *http.Server, listener net.Listener, log *slog.Logger) error {
	defer listener.Close() // the toolkit leaves it open if the file has become bad
	if path == "" {
		return server.Serve(listener)
	}
	return web.Serve(listener, server, &web.FlagConfig{WebConfigFile: &path}, log.With("web_config", path))
}
