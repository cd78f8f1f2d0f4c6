package logbackup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Place is where a backup is stored. Names have slashes between their parts. All methods may be called concurrently.
type Place interface {
	// String names the place without secrets.
	String() string

	// List returns the files of the backup, none if the place does not exist yet.
	List(ctx context.Context) ([]File, error)

	// Open returns the content of a file.
	Open(ctx context.Context, name string) (io.ReadCloser, error)

	// Put calls write to make a file with a name, or to replace it. When Put returns nil the file is durable. It never exists in part.
	Put(ctx context.Context, name string, write func(io.Writer) error) error

	// Remove removes a file, if it exists.
	Remove(ctx context.Context, name string) error

	// Hold keeps other processes from writing a backup to this place until release is called, or this process ends. Its error wraps
	// ErrHeld if another process is writing one. lost is closed if another process takes over while this one can't reach the place.
	Hold(ctx context.Context) (lost <-chan struct{}, release func() error, err error)

	// Sweep removes what killed processes have written of unfinished files. Call it as the holder, before the first Put.
	Sweep(ctx context.Context) error
}

// File is a file of a backup.
type File struct {
	Name    string
	Size    int64
	Changed time.Time
}

// ErrHeld means that another process writes a backup to the place.
var ErrHeld = errors.New("another sqube backup --follow writes there, or a server with --archive: stop it, or give another place")

// ParsePlace parses a place on the command line: a folder, or s3://BUCKET/PREFIX.
func ParsePlace(text string) (Place, error) {
	scheme, _, found := strings.Cut(text, "://")
	switch {
	case found && scheme == "s3":
		return parseS3(text)
	case found:
		return nil, fmt.Errorf("a place must be a folder or s3://BUCKET/PREFIX, not %s://…", scheme)
	}
	return folder(text), nil
}
