package stack

import (
	"testing"
	"unsafe"
)

// TestRoom checks that a stack does not move while a function uses as much of it as was reserved.
func TestRoom(t *testing.T) {
	for name, test := range map[string]struct {
		reserve func()
		depth   int // in frames of use
		moves   bool
	}{
		"nothing": {func() {}, 12, true},
		"request": {Request, 12, false},
		"write":   {Write, 26, false},
	} {
		moved := make(chan bool)
		go func() {
			var here byte
			test.reserve()
			before := uintptr(unsafe.Pointer(&here))
			use(test.depth)
			moved <- uintptr(unsafe.Pointer(&here)) != before
		}()
		if <-moved != test.moves {
			t.Errorf("%s: the stack moved: %v, want %v", name, !test.moves, test.moves)
		}
	}
}

// use calls itself depth times with frames of 1 KiB.
//
//go:noinline
func use(depth int) byte {
	var room [1 << 10]byte
	touch(room[:])
	if depth > 0 {
		return room[0] + use(depth-1)
	}
	return room[0]
}
