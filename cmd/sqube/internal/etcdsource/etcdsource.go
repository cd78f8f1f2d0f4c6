// Package etcdsource reads the keys and values in which kube-apiserver keeps a cluster: in etcd, or in kine, which stands in
// for etcd on a SQL database.
package etcdsource

import (
	"context"
	"time"
)

// Source is one state of a store of keys and values. Its methods are not for concurrent use.
type Source interface {
	// Revision is that of the state: the newest that the store had handed out.
	Revision() int64

	// Walk calls yield once for each key that exists and begins with prefix, in any order. An error of yield ends the
	// walk and is returned as it is. Entries are yielded as they are read; what is kept in memory meanwhile is a few bytes
	// for each key at most.
	Walk(ctx context.Context, prefix string, yield func(*Entry) error) error

	// Close ends the use of the store.
	Close() error
}

// Entry is a key that exists.
type Entry struct {
	Key   string
	Value []byte
	// Revision is that of the last change. In etcd, several keys that were changed in one transaction share it.
	Revision int64
	// TTL is after how long the key vanishes, as the store itself would count it from now; 0 for never.
	TTL time.Duration
}
