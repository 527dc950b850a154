package kernel

import (
	"context"
	"path/filepath"
)

// FileServer is a server of files that are on its disk.
type FileServer interface {
	Start(context.Context) error // returns when it listens
	Stop(context.Context) error  // finishes open requests until the context ends
	Content() string             // folder of the files
}

// ObjectStore is an object store on the disk (Versity's gateway, which speaks S3) in a place. `make store` installs its program.
type ObjectStore struct {
	Place   Place
	Dir     string           // for objects and the log; each store needs its own
	Port    int              // 0 means 80
	Objects map[string]int64 // size in bytes by key, in StoreBucket
	server
}

// Who may read the objects, and where they are.
const (
	StoreUser   = "quell"
	StoreSecret = "quell-lab"
	StoreRegion = "us-east-1"
	StoreBucket = "store"
)

// Content is the folder of the objects.
func (s *ObjectStore) Content() string { return filepath.Join(s.Dir, "content", StoreBucket) }
