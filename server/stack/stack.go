// Package stack gives goroutines that serve requests a stack of the size that they need, at once.
//
// A goroutine begins with 2 KiB, and whenever that is not enough the stack is copied to one of twice the size, frame by
// frame. A request passes some twenty filters and has up to three goroutines, so this came to a tenth of its CPU time.
// A stack that is made large while it is almost empty costs next to nothing to copy.
package stack

// Request makes the stack of the calling goroutine large enough for a read, or for a request on its way to a write.
//
//go:noinline
func Request() {
	if never { // the frame has room for all variables, wherever they are declared
		var room [14 << 10]byte // the runtime keeps stacks of 16 KiB at hand
		touch(room[:])
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

// never is a variable so that the compiler does not know.
var never bool

//go:noinline
func touch(room []byte) { room[0] = 1 }
