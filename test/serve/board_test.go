package serve

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
)

// TestDiskOfABoard makes a memory card fail the way cards do.
func TestDiskOfABoard(t *testing.T) {
	t.Parallel()
	disk := faults.NewDisk(t)
	s := serve(t, []string{"--datastore-timeout", "1m", "--retention", "1s"}, disk.Run)
	w := newWriter(t, s)
	settle(t, s)

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
		// More is written than fits, in waves. Compacting replaced versions makes room for the next wave.
		const room, wave = 8 << 20, 2 << 20
		disk.Room(room)
		c := client(t, s.Kubeconfig)
		db := openToRead(t, harness.Engine{Name: "sqlite", Datastore: "sqlite://" + filepath.Join(s.DataDir, "sqube.db")})
		for written := 0; written < room+wave; {
			for until := written + wave; written < until; {
				value := strings.Repeat(fmt.Sprintf("%07d ", written), 100_000/8)
				setData(t, c, fmt.Sprint("again-", written%5), value)
				written += len(value)
			}
			harness.Retry(t, "it is compacted", func() error {
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
		w.written(t, "writable")
		w.kept(t)
	})
	t.Run("is still read-only at the next start", func(t *testing.T) {
		disk.ReadOnly(true)
		w.refused(t, "unwritten")
		s.Kill(t)
		refuses(t, "see whether its disk is full (df) or fails (dmesg)", serveArgs(t, s.DataDir), disk.Run)
		disk.ReadOnly(false)
		again := serveAgain(t, s, nil, disk.Run)
		w.kept(t)
		again.Stop(t)
	})
	checked(t, "sqlite://"+filepath.Join(s.DataDir, "sqube.db"))
}

// TestRoomOnAFullDisk fills the disk, with versions that can be removed and with objects. Removing them takes space too, so
// there has to be some left.
func TestRoomOnAFullDisk(t *testing.T) {
	t.Parallel()
	const room, value = 2 << 20, 100_000
	disk := faults.NewDisk(t)
	s := serve(t, []string{"--retention", "10s", "--compact-interval", "100ms"}, disk.Run)
	w := newWriter(t, s)
	settle(t, s)
	disk.Room(room)

	t.Run("of versions", func(t *testing.T) {
		// The disk is full long before the first versions are old enough to be removed.
		var written atomic.Int64
		var writing sync.WaitGroup
		for i := range 3 {
			c := client(t, s.Kubeconfig)
			writing.Go(func() {
				for written.Load() < 2*room && t.Context().Err() == nil {
					_, err := trySetData(t, c, fmt.Sprint("flood-", i), strings.Repeat(fmt.Sprintf("%07d ", written.Load()), value/8))
					if err != nil && !apierrors.IsServiceUnavailable(err) {
						t.Error(err)
						return
					}
					if err == nil {
						written.Add(value)
					}
				}
			})
		}
		writing.Wait()
		if log := s.Log(t); !strings.Contains(log, "writing to the database failed") {
			t.Errorf("the disk was never full\n%s", log)
		}
		w.kept(t)
	})
	t.Run("of objects", func(t *testing.T) {
		var full error
		for i := 0; full == nil; i++ {
			full = w.create(t, fmt.Sprint("filling-", i))
		}
		c := client(t, s.Kubeconfig).CoreV1().ConfigMaps("default")
		w.names = slices.DeleteFunc(w.names, func(name string) bool {
			filling := strings.HasPrefix(name, "filling-")
			if filling {
				harness.Must(t, c.Delete(t.Context(), name, metav1.DeleteOptions{}))
			}
			return filling
		})
		w.written(t, "after-deletions")
		w.kept(t)
	})
	t.Run("at a start", func(t *testing.T) {
		harness.Retry(t, "space is set aside again", func() error {
			info, err := os.Stat(filepath.Join(s.DataDir, "sqube.db-reserve"))
			if err == nil && info.Size() == 0 {
				err = errors.New("the reserve is empty")
			}
			return err
		})
		disk.Full(true)
		s.Kill(t)
		again := serveAgain(t, s, nil, disk.Run)
		w.kept(t)
		again.Stop(t)
	})
	checked(t, "sqlite://"+filepath.Join(s.DataDir, "sqube.db"))
}

// TestDiskFullDuringARead fills the disk while another process reads: nothing gives space back before that read ends, since SQLite's
// log can't be emptied. The server says so, still deletes, and recovers by itself.
func TestDiskFullDuringARead(t *testing.T) {
	t.Parallel()
	disk := faults.NewDisk(t)
	s := serve(t, []string{"--retention", "1s"}, disk.Run)
	w := newWriter(t, s)
	settle(t, s)
	datastore := "sqlite://" + filepath.Join(s.DataDir, "sqube.db")
	read, err := openToRead(t, harness.Engine{Name: "sqlite", Datastore: datastore}).Query("SELECT id FROM log")
	if err != nil || !read.Next() {
		t.Fatal(err)
	}
	defer read.Close()
	disk.Room(24 << 20)
	for i := 0; w.create(t, fmt.Sprint("filling-", i)) == nil; i++ {
	}
	reader := fmt.Sprintf("a long read holds back the write-ahead log %s/sqube.db-wal: end process %d (serve.test)", s.DataDir, os.Getpid())
	harness.Retry(t, "the log names the reader", func() error {
		if log := s.Log(t); !strings.Contains(log, reader) {
			return fmt.Errorf("no %q in\n%s", reader, log)
		}
		return nil
	})
	deleteLast := func() int {
		last := len(w.names) - 1
		request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.url+"/"+w.names[last], nil)
		harness.Must(t, err)
		response, err := w.http.Do(request)
		harness.Must(t, err)
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			w.names = w.names[:last]
		}
		return response.StatusCode
	}
	for range 20 {
		if code := deleteLast(); code != http.StatusOK {
			t.Errorf("a deletion during the read returns %d", code)
		}
	}
	disk.Room(64 << 10) // something else takes the rest
	for len(w.names) > 0 && deleteLast() == http.StatusOK {
	}
	if len(w.names) == 0 {
		t.Error("there is still space")
	}
	w.refused(t, "unwritten")
	s.Kill(t)
	again := serveAgain(t, s, nil, disk.Run)
	w.refused(t, "unwritten")
	w.kept(t)
	harness.Must(t, read.Close())
	w.written(t, "after-the-read")
	if code := deleteLast(); code != http.StatusOK {
		t.Errorf("a deletion after the read returns %d", code)
	}
	w.kept(t)
	again.Stop(t)
	checked(t, datastore)
}
