// Package stack grows the stacks of goroutines that serve requests to the needed size at once.
//
// A goroutine's stack starts with 2 KiB. Whenever it overflows, it is copied to one of twice the size, frame by frame. A request
// passes about twenty filters and has up to three goroutines, so this took a tenth of its CPU time. Growing a stack that is almost
// empty costs very little.
package stack

import (
	"fmt"
	"net/http"
	"runtime/debug"
)

// Request makes the stack of the calling goroutine large enough for a read, or for a request on its way to a write.
//
//go:noinline
func Request() {
	if never { // the frame has space for all variables of the function, used or not
		var room [14 << 10]byte // the runtime caches stacks of 16 KiB
		touch(room[:])
	}
}

// Elsewhere calls f in another goroutine, with a stack for requests. It returns a channel that gets what f panicked with, or nil, for
// Repanic.
func Elsewhere(f func()) <-chan any {
	returned := make(chan any, 1)
	go func() {
		defer func() {
			panicked := recover()
			if panicked != nil && panicked != http.ErrAbortHandler {
				panicked = fmt.Sprintf("%v\n%s", panicked, debug.Stack())
			}
			returned <- panicked
		}()
		Request()
		f()
	}()
	return returned
}

// Repanic panics with what another goroutine panicked with, unless that is nil.
func Repanic(panicked any) {
	if panicked != nil {
		panic(panicked)
	}
}

// Write makes the stack of the calling goroutine large enough for a write: admission, field managers, encoders.
//
//go:noinline
func Write() {
	if never {
		var room [30 << 10]byte
		touch(room[:])
	}
}

// never is a variable, so that the compiler does not remove the branches.
var never bool

//go:noinline
func touch(room []byte) { room[0] = 1 }
