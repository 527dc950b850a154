package kernel

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Nginx is a web server in a place, with a configuration of its own: one worker, files served from memory.
type Nginx struct {
	Place Place
	Dir   string           // for configuration, content and logs; each server needs its own
	Port  int              // 0 means 80
	Files map[string]int64 // size in bytes by path, as "file" or "video/chunk"
	server
}

// erringFile is a file below the content of an nginx; while it exists, nginx answers every request by an error.
const erringFile = "erring"

// SetErring makes the nginx with this folder answer every request but GET /healthz by 503 from now on, or ends that. The end takes up to
// a second.
func SetErring(dir string, erring bool) error {
	path := filepath.Join(dir, "content", erringFile)
	if erring {
		return os.WriteFile(path, nil, 0o644)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Start writes the configuration, starts nginx, and returns when it listens. nginx answers GET /healthz in addition to the files. A
// missing program is a *quell.UserError.
func (n *Nginx) Start(ctx context.Context) error {
	if n.run != nil {
		return errors.New("this nginx has been started already")
	}
	if err := needPrograms("nginx"); err != nil {
		return err
	}
	if n.Port == 0 {
		n.Port = 80
	}
	if err := n.write(); err != nil {
		return fmt.Errorf("preparing nginx: %w", err)
	}
	n.finish, n.force = syscall.SIGQUIT, syscall.SIGTERM
	return n.start(ctx, func() (*process, error) {
		// Its workers end with the master only if the master is stopped, not if it is killed.
		return launch(n.Place, n.Dir, "nginx", syscall.SIGTERM, "nginx", "-p", n.Dir, "-c", "nginx.conf", "-e", "stderr")
	}, n.Port)
}

func (n *Nginx) write() error {
	var err error
	if n.Dir, err = filepath.Abs(n.Dir); err != nil {
		return err
	}
	if err := SetErring(n.Dir, false); err != nil { // left from an earlier run
		return err
	}
	content := filepath.Join(n.Dir, "content")
	for _, folder := range []string{content, filepath.Join(n.Dir, "temp")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if err := writeFiles("nginx", content, n.Files); err != nil {
		return err
	}
	text := fmt.Sprintf(configuration, n.Place.address, n.Port)
	return os.WriteFile(filepath.Join(n.Dir, "nginx.conf"), []byte(text), 0o644)
}

// writeFiles writes files of these sizes below a server's folder.
func writeFiles(server, folder string, sizes map[string]int64) error {
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if !filepath.IsLocal(name) || sizes[name] < 0 {
			return userErrorf("%s: %q of %d bytes: give a path below the server's root, and a size", server, name, sizes[name])
		}
		if err := writeNoise(filepath.Join(folder, name), sizes[name]); err != nil {
			return err
		}
	}
	return nil
}

// writeNoise writes a file that cannot be compressed on the way. Its content is always the same.
func writeNoise(path string, size int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	noise := rand.NewChaCha8(sha256.Sum256([]byte(filepath.Base(path))))
	_, err = io.CopyN(file, noise, size)
	return errors.Join(err, file.Close())
}

// configuration has paths relative to nginx's -p, because a folder's name may contain any character. nginx runs as root, because other
// users may not be able to read that folder; the namespace is isolated from other networks.
const configuration = `daemon off;
user root;
worker_processes 1;
pid nginx.pid;
error_log stderr warn;
events {
    worker_connections 8192;
    multi_accept on;
}
http {
    access_log off;
    client_body_temp_path temp/body;
    proxy_temp_path temp/proxy;
    fastcgi_temp_path temp/fastcgi;
    uwsgi_temp_path temp/uwsgi;
    scgi_temp_path temp/scgi;
    sendfile on;
    tcp_nodelay on;
    open_file_cache max=100;
    open_file_cache_valid 1s;
    keepalive_timeout 300s;
    keepalive_requests 1000000000;
    default_type application/octet-stream;
    server {
        listen %s:%d backlog=4096;
        root content;
        location = /healthz {
            default_type text/plain;
            return 200 "ok\n";
        }
        location / {
            if (-f $document_root/erring) {
                return 503;
            }
        }
    }
}
`
