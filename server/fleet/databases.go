package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/sqube/sqube/sqlstore"
)

// Databases keeps the databases of clusters. All methods are safe for concurrent use. What they make is there as a whole or not at all, also
// after the process was killed.
type Databases interface {
	// Create makes a database with the default objects of a new cluster. It does nothing if there is one.
	Create(ctx context.Context, id string) error
	// Fork makes a database with the objects and the history of another at a moment, without its keys and tokens. It returns the revision of
	// the state. Writers of the other one, which may be open, do not wait.
	Fork(ctx context.Context, from, to string, at Moment) (revision int64, err error)
	// Restore is Fork from a backup: a file, a folder or s3://BUCKET/PREFIX.
	Restore(ctx context.Context, backup, to string, at Moment) (revision int64, err error)
	// Export writes all of a database, which may be open, to a new file: an SQLite database with the same revisions. The keys in it remain encrypted.
	Export(ctx context.Context, id, file string) error
	// Import makes a database of a file that Export wrote. It does nothing if there is one.
	Import(ctx context.Context, id, file string) error
	// Open opens a database, which no other process may have open. If one has, the error is an *Elsewhere.
	Open(ctx context.Context, id string, options sqlstore.Options) (*sqlstore.Store, error)
	// Remove removes a database that is not open. It does nothing if there is none.
	Remove(ctx context.Context, id string) error
	// IDs returns the ids of all databases.
	IDs(ctx context.Context) ([]string, error)
	// Bytes returns the size of a database.
	Bytes(ctx context.Context, id string) (int64, error)
}

// Shared is implemented by Databases that other servers may have open.
type Shared interface {
	// Join has other servers know this one by its URL. lost is called when this server may no longer answer for a database that it has open,
	// since another one may have taken it over: what it has in memory may be old.
	Join(ctx context.Context, url string, lost func(id string)) error
	// Owner returns the URL of the server that has a database open, "" if none has, or this one.
	Owner(ctx context.Context, id string) (url string, err error)
	// Holds reports whether this server may answer for a database that it has open.
	Holds(id string) bool
}

// Moment selects a state of a database: at a revision, at a time, or the newest if both are zero.
type Moment struct {
	Revision int64
	Time     time.Time
}

// Elsewhere is the error of opening a database that another server has open.
type Elsewhere struct {
	// URL is where that server hosts clusters.
	URL string
}

// Error implements error.
func (e *Elsewhere) Error() string {
	return fmt.Sprintf("the cluster is awake on the server %s", e.URL)
}
