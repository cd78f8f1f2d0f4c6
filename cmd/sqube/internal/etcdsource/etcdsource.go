// Package etcdsource reads the keys and values of kube-apiserver from etcd, or from kine, which stands in for etcd on a SQL
// database.
package etcdsource

import (
	"context"
	"time"
)

// Source is one state of a key-value store. Its methods must not be called concurrently.
type Source interface {
	// Revision is the newest revision in the state.
	Revision() int64

	// Walk calls yield once for each existing key with the prefix, in any order. An error of yield ends the walk and is returned.
	// Entries are yielded as they are read; it keeps at most a few bytes per key in memory.
	Walk(ctx context.Context, prefix string, yield func(*Entry) error) error

	// Close closes the store.
	Close() error
}

// Entry is a key and its value.
type Entry struct {
	Key   string
	Value []byte
	// Revision is the revision of the last change. Keys that etcd changed in one transaction have the same one.
	Revision int64
	// TTL is the remaining time until the key expires; 0 for never.
	TTL time.Duration
}
