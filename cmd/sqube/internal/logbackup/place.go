package logbackup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Place is where a backup is. Names have slashes between their parts. All methods may be called at once.
type Place interface {
	// String names the place without secrets.
	String() string

	// List returns all files, and nothing where there is no such place yet.
	List(ctx context.Context) ([]File, error)

	// Open returns the content of a file.
	Open(ctx context.Context, name string) (io.ReadCloser, error)

	// Put has write make a file of that name. It is there when Put returns nil, durable and whole, and never in part. A file
	// that has the name is replaced.
	Put(ctx context.Context, name string, write func(io.Writer) error) error

	// Remove removes a file, if it is there.
	Remove(ctx context.Context, name string) error

	// Hold makes sure that no other process follows a log into this place until release is called, or this process ends. It
	// returns an error that wraps ErrHeld where another one does. What it returns as lost is closed when another process has
	// taken the place all the same, since this one was cut off from it.
	Hold(ctx context.Context) (lost <-chan struct{}, release func(context.Context) error, err error)
}

// File is a file of a backup.
type File struct {
	Name    string
	Size    int64
	Changed time.Time
}

// ErrHeld says that another process follows a log into the place.
var ErrHeld = errors.New("another sqube backup --follow writes there, or a server with --archive: end that one, or give another place")

// ParsePlace parses a place as the command line has it: a folder, or s3://BUCKET/PREFIX.
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
