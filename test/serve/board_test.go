package serve

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
)

// TestDiskOfABoard has a memory card do what cards do.
func TestDiskOfABoard(t *testing.T) {
	t.Parallel()
	disk := faults.NewDisk(t)
	s := serve(t, []string{"--datastore-timeout", "1m", "--retention", "1s"}, disk.Run)
	w := newWriter(t, s)
	s.settle(t)

	t.Run("stalls", func(t *testing.T) { // for less than the timeout
		disk.SlowSync(time.Hour)
		var asking sync.WaitGroup
		for i := range 20 {
			asking.Go(func() {
				if err := w.create(t, fmt.Sprint("stalled-", i)); err != nil {
					t.Error(err)
				}
			})
		}
		awaitSync(t, disk)
		w.serves(t)
		disk.SlowSync(0)
		asking.Wait()
		w.kept(t)
	})
	t.Run("is nearly full", func(t *testing.T) {
		// More is written than there is room for, in waves. What was replaced and forgotten makes room for the next one.
		const room, wave = 16 << 20, 4 << 20
		disk.Room(room)
		c := client(t, s.kubeconfig())
		db := openToRead(t, harness.Engine{Name: "sqlite", Datastore: "sqlite://" + filepath.Join(s.dataDir, "sqube.db")})
		for written := 0; written < room+wave; {
			for until := written + wave; written < until; {
				value := strings.Repeat(fmt.Sprintf("%07d ", written), 100_000/8)
				setData(t, c, fmt.Sprint("again-", written%5), value)
				written += len(value)
			}
			eventually(t, "it is forgotten", func() error {
				var left int
				err := db.QueryRow("SELECT count(*) FROM log WHERE name LIKE 'again-%' AND replaced_by IS NOT NULL").Scan(&left)
				if err == nil && left > 0 {
					err = fmt.Errorf("%d versions are left", left)
				}
				return err
			})
		}
		disk.Full(false)
		w.kept(t)
	})
	t.Run("turns read-only", func(t *testing.T) {
		disk.ReadOnly(true)
		w.refused(t, "unwritten")
		w.refused(t, "unwritten")
		w.serves(t)
		w.absent(t, "unwritten")
		disk.ReadOnly(false)
		eventually(t, "it can be written", func() error { return w.create(t, "writable") })
		w.kept(t)
	})
	t.Run("was read-only at the end", func(t *testing.T) {
		disk.ReadOnly(true)
		w.refused(t, "unwritten")
		s.signal(t, syscall.SIGKILL)
		s.wait(t)
		refuses(t, "see whether its disk is full (df) or fails (dmesg)", serveArgs(t, s.dataDir), disk.Run)
		disk.ReadOnly(false)
		again := serveAt(t, s.dataDir, s.url[len("https://127.0.0.1:"):], nil, disk.Run)
		w.kept(t)
		again.terminate(t)
	})
	checked(t, "sqlite://"+filepath.Join(s.dataDir, "sqube.db"))
}
