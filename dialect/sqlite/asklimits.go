package sqlite

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// The limits of a statement of Ask, in bytes: what SQLite may have in memory for it at once, and may write to temporary files.
const (
	maxAskedMemory  = 64 << 20
	maxAskedColumns = 100
)

var maxAskedTemporary int64 = 512 << 20

// SQLite knows no such limits of a connection. So its functions for memory and files are wrapped here: for the thread of a statement of Ask,
// which they are called with, they count, and fail beyond the limits or when the statement's time is over.

// budget is what a statement has taken. Only its goroutine changes it.
type budget struct {
	memory, written int64
	exceeded        error
	ended           atomic.Bool // whether its time is over
}

var (
	budgets  sync.Map     // *libc.TLS → *budget
	nBudgets atomic.Int64 // most of the time 0
)

func budgetOf(tls *libc.TLS) *budget {
	if nBudgets.Load() == 0 {
		return nil
	}
	if b, ok := budgets.Load(tls); ok {
		return b.(*budget)
	}
	return nil
}

// limit begins to count for a thread, until release is called.
func limit(tls *libc.TLS) (b *budget, release func()) {
	b = &budget{}
	budgets.Store(tls, b)
	nBudgets.Add(1)
	return b, sync.OnceFunc(func() {
		budgets.Delete(tls)
		nBudgets.Add(-1)
	})
}

// allows reports whether so much more may be in memory.
func (b *budget) allows(n int64) bool {
	if b.memory+n > maxAskedMemory {
		b.exceeded = fmt.Errorf("the statement takes more than %d MiB of memory: select less at once", maxAskedMemory>>20)
	}
	return b.exceeded == nil && !b.ended.Load()
}

// pointerTo returns the pointer by which SQLite calls f, which must not be a closure; functionAt is the reverse. That is how modernc.org/sqlite
// represents pointers to functions.
func pointerTo[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

func functionAt[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

// fetch returns a copy of what SQLite has in memory, and handOver copies something to memory for SQLite.
func fetch[T any](at uintptr) (v T) {
	copy(bytesOf(&v), libc.GoBytes(at, int(unsafe.Sizeof(v))))
	return v
}

func handOver[T any](v T) uintptr {
	p, err := libc.CString(string(bytesOf(&v)))
	if err != nil { // there is no memory
		panic(err)
	}
	return p
}

func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// memory has the functions of SQLite that are wrapped.
var memory struct {
	malloc  func(*libc.TLS, int32) uintptr
	realloc func(*libc.TLS, uintptr, int32) uintptr
	free    func(*libc.TLS, uintptr)
	size    func(*libc.TLS, uintptr) int32
}

// SQLite takes other functions only until the first database is opened.
func init() {
	tls := libc.NewTLS()
	defer tls.Close()
	config := func(option int32, methods sqlite3.Tsqlite3_mem_methods) sqlite3.Tsqlite3_mem_methods {
		at := handOver(methods)
		defer libc.Xfree(tls, at)
		arguments := libc.NewVaList(at)
		defer libc.Xfree(tls, arguments)
		if sqlite3.Xsqlite3_config(tls, option, arguments) != sqlite3.SQLITE_OK {
			panic("SQLite takes no other functions for memory: a database was opened before")
		}
		return fetch[sqlite3.Tsqlite3_mem_methods](at)
	}
	methods := config(sqlite3.SQLITE_CONFIG_GETMALLOC, sqlite3.Tsqlite3_mem_methods{})
	memory.malloc = functionAt[func(*libc.TLS, int32) uintptr](methods.FxMalloc)
	memory.realloc = functionAt[func(*libc.TLS, uintptr, int32) uintptr](methods.FxRealloc)
	memory.free = functionAt[func(*libc.TLS, uintptr)](methods.FxFree)
	memory.size = functionAt[func(*libc.TLS, uintptr) int32](methods.FxSize)
	methods.FxMalloc, methods.FxRealloc, methods.FxFree = pointerTo(malloc), pointerTo(realloc), pointerTo(free)
	config(sqlite3.SQLITE_CONFIG_MALLOC, methods)
}

func malloc(tls *libc.TLS, n int32) uintptr {
	b := budgetOf(tls)
	if b != nil && !b.allows(int64(n)) {
		return 0
	}
	p := memory.malloc(tls, n)
	if b != nil && p != 0 {
		b.memory += int64(memory.size(tls, p))
	}
	return p
}

func realloc(tls *libc.TLS, p uintptr, n int32) uintptr {
	b := budgetOf(tls)
	if b == nil {
		return memory.realloc(tls, p, n)
	}
	before := int64(memory.size(tls, p))
	if int64(n) > before && !b.allows(int64(n)-before) {
		return 0
	}
	if p = memory.realloc(tls, p, n); p != 0 {
		b.memory += int64(memory.size(tls, p)) - before
	}
	return p
}

func free(tls *libc.TLS, p uintptr) {
	if b := budgetOf(tls); b != nil {
		b.memory -= int64(memory.size(tls, p))
	}
	memory.free(tls, p)
}

// askedVFS is the name of SQLite's own file system for statements of Ask.
const askedVFS = "sqube-asked"

var files struct {
	open    func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32
	write   func(*libc.TLS, uintptr, uintptr, int32, int64) int32
	methods struct {
		sync.Mutex
		of uintptr // those of temporary files
		// counting is the address of the pointer to the same with another write.
		counting uintptr
	}
}

// registerFiles registers askedVFS. SQLite keeps it for as long as the process runs.
var registerFiles = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	own := sqlite3.Xsqlite3_vfs_find(tls, 0)
	name, err := libc.CString(askedVFS)
	if own == 0 || err != nil {
		return errors.New("SQLite has no file system")
	}
	vfs := fetch[sqlite3.Tsqlite3_vfs](own)
	files.open = functionAt[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](vfs.FxOpen)
	vfs.FxOpen, vfs.FzName, vfs.FpNext = pointerTo(openFileOfAsked), name, 0
	if sqlite3.Xsqlite3_vfs_register(tls, handOver(vfs), 0) != sqlite3.SQLITE_OK {
		return errors.New("SQLite takes no file system")
	}
	return nil
})

const temporaryFiles = sqlite3.SQLITE_OPEN_TEMP_DB | sqlite3.SQLITE_OPEN_TEMP_JOURNAL | sqlite3.SQLITE_OPEN_TRANSIENT_DB | sqlite3.SQLITE_OPEN_SUBJOURNAL

// openFileOfAsked opens a file. If it is a temporary one, what is written to it counts.
func openFileOfAsked(tls *libc.TLS, vfs, name, file uintptr, flags int32, opened uintptr) int32 {
	code := files.open(tls, vfs, name, file, flags, opened)
	methods := load(file) // the first field of a file
	if code != sqlite3.SQLITE_OK || flags&temporaryFiles == 0 || methods == 0 {
		return code
	}
	m := &files.methods
	m.Lock()
	defer m.Unlock()
	if m.of == 0 {
		whole := fetch[sqlite3.Tsqlite3_io_methods](methods)
		files.write = functionAt[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](whole.FxWrite)
		whole.FxWrite = pointerTo(writeTemporary)
		m.of, m.counting = methods, handOver(handOver(whole))
	}
	if methods != m.of { // as for no temporary file that SQLite opens
		functionAt[func(*libc.TLS, uintptr) int32](fetch[sqlite3.Tsqlite3_io_methods](methods).FxClose)(tls, file)
		libc.Xmemset(tls, file, 0, bits.UintSize/8)
		return sqlite3.SQLITE_CANTOPEN
	}
	libc.Xmemcpy(tls, file, m.counting, bits.UintSize/8)
	return code
}

func writeTemporary(tls *libc.TLS, file, bytes uintptr, n int32, offset int64) int32 {
	if b := budgetOf(tls); b != nil {
		if b.written += int64(n); b.written > maxAskedTemporary {
			b.exceeded = fmt.Errorf("the statement takes more than %d MiB of temporary files: select less at once", maxAskedTemporary>>20)
			return sqlite3.SQLITE_FULL
		}
		if b.ended.Load() {
			return sqlite3.SQLITE_INTERRUPT
		}
	}
	return files.write(tls, file, bytes, n, offset)
}
