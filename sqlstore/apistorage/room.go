package apistorage

import "sync"

// roomBytes is how much the lists that are being answered may hold together
// beyond the page that each works on.
const roomBytes = 32 << 20

// room is the memory that running lists share.
type room struct {
	mu   sync.Mutex
	free int
}

func newRoom() *room { return &room{free: roomBytes} }

// roomShare is what one list has taken of the room.
type roomShare struct {
	room  *room
	taken int
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

// giveBack gives back all that was taken.
func (s *roomShare) giveBack() {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.room.free += s.taken
	s.taken = 0
}
