package apistorage

import (
	"context"
	"sync"

	"github.com/sqube/sqube/sqlstore"
)

// Lists that are made of objects, of which a response needs all at once, such
// as YAML and those of custom resources, take memory as long as they are. Those
// that run at once share a room. A list that does not fit waits until it may go
// beyond it, which one list may at a time: so all of them come to their end,
// and together they need no more than the room and the largest.
const (
	// roomBytes is how large the room is.
	roomBytes = 128 << 20
	// decodedBytes is what a byte in the database takes as a part of an object
	// and of the response, roughly.
	decodedBytes = 4
	// heldBytes is how much protobuf lists hold beside that; see writeProtobuf.
	heldBytes = 32 << 20
)

// room is the memory that running lists share.
type room struct {
	mu   sync.Mutex
	free int
	// beyond has one element, which the list takes that goes beyond the room.
	beyond chan struct{}
}

func newRoom(bytes int) *room {
	r := &room{free: bytes, beyond: make(chan struct{}, 1)}
	r.beyond <- struct{}{}
	return r
}

// roomShare is what one list has taken of a room.
type roomShare struct {
	room   *room
	taken  int
	beyond bool
}

// take takes so many bytes more, if they are free.
func (s *roomShare) take(bytes int) bool {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if bytes > s.room.free {
		return false
	}
	s.room.free -= bytes
	s.taken += bytes
	return true
}

// wait takes so many bytes more, when they are free or the list may go beyond
// the room.
func (s *roomShare) wait(ctx context.Context, bytes int) error {
	if s.beyond || s.take(bytes) {
		return nil
	}
	select {
	case <-s.room.beyond:
		s.beyond = true
		return nil
	case <-ctx.Done():
		return interpret(ctx.Err())
	}
}

// giveBack gives back all that was taken.
func (s *roomShare) giveBack() {
	if s.room == nil {
		return
	}
	s.room.mu.Lock()
	s.room.free += s.taken
	s.room.mu.Unlock()
	if s.beyond {
		s.room.beyond <- struct{}{}
	}
	s.taken, s.beyond = 0, false
}

type roomKey struct{}

// WithRoom returns a context for a request that reads, and what is to be called
// when it has been answered: until then what its list needs is taken.
func WithRoom(ctx context.Context) (context.Context, func()) {
	s := &roomShare{}
	return context.WithValue(ctx, roomKey{}, s), s.giveBack
}

// settle takes the room that a page of objects needs. The first page of a list
// is free, so that only long ones wait, and so are lists in the process.
func (w *walk) settle(ctx context.Context) error {
	share, ok := ctx.Value(roomKey{}).(*roomShare)
	w.bytes += w.pageBytes
	if !ok || w.bytes < sqlstore.PageBytes+w.pageBytes {
		return nil
	}
	share.room = w.decoded
	return share.wait(ctx, decodedBytes*w.pageBytes)
}
