package datastore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server/fleet"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

var things = sqlstore.Resource{Group: "things.example.com", Name: "things"}

// put creates objects of these names, one after the other, and returns the last revision.
func put(t testing.TB, s *sqlstore.Store, names ...string) (last int64) {
	t.Helper()
	for _, name := range names {
		var err error
		last, err = s.Write(t.Context(), sqlstore.Internal(things, name, nil, []byte(`{}`)))
		harness.Must(t, err)
	}
	return last
}

// names returns the names of all objects.
func names(t testing.TB, s *sqlstore.Store) (all []string) {
	t.Helper()
	page, err := s.Page(t.Context(), sqlstore.Query{Resource: things})
	harness.Must(t, err)
	for _, r := range page.Records {
		all = append(all, r.Key)
	}
	return all
}

func open(t testing.TB, d fleet.Databases, id string) *sqlstore.Store {
	t.Helper()
	s, err := d.Open(t.Context(), id, sqlstore.Options{})
	harness.Must(t, err)
	return s
}

// schemas returns databases in a new Postgres database.
func schemas(t *testing.T) fleet.Databases {
	t.Helper()
	d := datastore.Datastore{DSN: harness.Postgres(t)}
	s := datastore.NewSchemas(&d)
	host, err := d.Open(t.Context())
	harness.Must(t, err)
	t.Cleanup(func() { harness.Must(t, host.Close()) })
	return s
}

// TestClusters goes through the life of databases of clusters, on disk, in memory and in Postgres.
func TestClusters(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "clusters")
	for kind, d := range map[string]fleet.Databases{"files": datastore.NewFiles(folder), "memory": datastore.NewMemory(), "schemas": schemas(t)} {
		t.Run(kind, func(t *testing.T) {
			harness.Must(t, errors.Join(d.Create(t.Context(), "base"), d.Create(t.Context(), "base")))
			base := open(t, d, "base")
			if _, err := d.Open(t.Context(), "base", sqlstore.Options{}); err == nil {
				t.Error("a database is open twice")
			}
			if err := d.Remove(t.Context(), "base"); err == nil {
				t.Error("an open database is removed")
			}
			early := put(t, base, "a")
			last := put(t, base, "b", "c")
			awake, err := d.Fork(t.Context(), "base", "awake", fleet.Moment{})
			if err != nil || awake != last {
				t.Errorf("the fork of an open database begins at %d, %v, not at %d", awake, err, last)
			}
			again, err := d.Fork(t.Context(), "base", "awake", fleet.Moment{})
			if err != nil || again != awake {
				t.Errorf("a fork that is there begins at %d, %v", again, err)
			}
			put(t, base, "d")
			harness.Must(t, base.Close())
			if _, err := d.Fork(t.Context(), "base", "asleep", fleet.Moment{}); err != nil {
				t.Error(err)
			}
			if revision, err := d.Fork(t.Context(), "base", "then", fleet.Moment{Revision: early}); err != nil || revision != early {
				t.Errorf("the fork at revision %d begins at %d, %v", early, revision, err)
			}
			if _, err := d.Fork(t.Context(), "base", "never", fleet.Moment{Revision: 1 << 40}); err == nil {
				t.Error("there is a fork of the future")
			}
			if _, err := d.Fork(t.Context(), "none", "never", fleet.Moment{}); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a fork of nothing: %v", err)
			}
			if _, err := d.Open(t.Context(), "never", sqlstore.Options{}); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("what could not be made is opened: %v", err)
			}
			for id, want := range map[string]string{"awake": "a b c", "asleep": "a b c d", "then": "a", "base": "a b c d"} {
				s := open(t, d, id)
				if got := strings.Join(names(t, s), " "); got != want {
					t.Errorf("%s has %q, not %q", id, got, want)
				}
				put(t, s, "own")
				harness.Must(t, s.Close())
				if size, err := d.Bytes(t.Context(), id); err != nil || size == 0 {
					t.Errorf("the size of %s is %d, %v", id, size, err)
				}
			}
			harness.Must(t, errors.Join(d.Remove(t.Context(), "then"), d.Remove(t.Context(), "then")))
			ids, err := d.IDs(t.Context())
			if slices.Sort(ids); err != nil || !slices.Equal(ids, []string{"asleep", "awake", "base"}) {
				t.Errorf("the databases are %v, %v", ids, err)
			}
		})
	}
	if left, err := filepath.Glob(folder + "/.*"); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestRestoredClusters makes databases from backups of others.
func TestRestoredClusters(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "clusters")
	files := datastore.NewFiles(folder)
	harness.Must(t, files.Create(t.Context(), "base"))
	base := open(t, files, "base")
	put(t, base, "a", "b")
	backup, err := os.Create(filepath.Join(t.TempDir(), "backup.db"))
	harness.Must(t, err)
	harness.Must(t, errors.Join(sqlite.Backup(t.Context(), filepath.Join(folder, "base", "sqube.db"), backup), backup.Close(), base.Close()))
	for kind, d := range map[string]fleet.Databases{"files": files, "memory": datastore.NewMemory()} {
		revision, err := d.Restore(t.Context(), backup.Name(), "restored", fleet.Moment{})
		harness.Must(t, err)
		s := open(t, d, "restored")
		if got := names(t, s); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%s: a backup is restored with %q", kind, got)
		}
		if next := put(t, s, "c"); next != revision+1 {
			t.Errorf("%s: revision %d follows %d", kind, next, revision)
		}
		harness.Must(t, s.Close())
	}
}

// TestForksWhileClustersWake forks a database again and again, while it is opened and closed.
func TestForksWhileClustersWake(t *testing.T) {
	d := datastore.NewFiles(filepath.Join(t.TempDir(), "clusters"))
	harness.Must(t, d.Create(t.Context(), "base"))
	var forking sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for i := range 3 {
		forking.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("fork-%d-%d", i, n)
				if _, err := d.Fork(t.Context(), "base", id, fleet.Moment{}); err != nil {
					t.Error(err)
					return
				}
				if err := d.Remove(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 20 {
		s := open(t, d, "base")
		put(t, s, fmt.Sprint("n-", i))
		harness.Must(t, s.Close())
	}
	stop()
	forking.Wait()
}

// killedFolder is the variable of the environment with the folder in which TestKilledWhileMaking, in a process that is killed, makes databases.
const killedFolder = "SQUBE_TEST_KILLED_FOLDER"

// TestKilledWhileMaking kills processes that make, fork and remove databases. Each database is there as a whole, or not at all.
func TestKilledWhileMaking(t *testing.T) {
	if folder := os.Getenv(killedFolder); folder != "" {
		makeUntilKilled(t, folder)
	}
	folder := filepath.Join(t.TempDir(), "clusters")
	first := datastore.NewFiles(folder)
	harness.Must(t, first.Create(t.Context(), "base"))
	s := open(t, first, "base")
	want := []string{"a", "b", "c"}
	put(t, s, want...)
	harness.Must(t, s.Close())
	left := 0
	for i := range 10 {
		worker := exec.Command(os.Args[0], "-test.run", "^TestKilledWhileMaking$")
		worker.Env = append(os.Environ(), killedFolder+"="+folder)
		output, err := worker.StdoutPipe()
		harness.Must(t, err)
		harness.Must(t, worker.Start())
		_, err = output.Read(make([]byte, 1)) // it has begun
		harness.Must(t, err)
		time.Sleep(time.Duration(i) * 7 * time.Millisecond)
		harness.Must(t, worker.Process.Kill())
		_ = worker.Wait() // it was killed
		unfinished, err := filepath.Glob(folder + "/.*")
		harness.Must(t, err)
		left += len(unfinished)

		d := datastore.NewFiles(folder)
		ids, err := d.IDs(t.Context())
		harness.Must(t, err)
		if unfinished, err := filepath.Glob(folder + "/.*"); err != nil || len(unfinished) > 0 {
			t.Errorf("%v are left, %v", unfinished, err)
		}
		for _, id := range ids {
			s := open(t, d, id)
			if got := names(t, s); strings.HasPrefix(id, "new-") && len(got) > 0 || !strings.HasPrefix(id, "new-") && !slices.Equal(got, want) {
				t.Errorf("%s has %v", id, got)
			}
			harness.Must(t, s.Close())
			if id != "base" {
				harness.Must(t, d.Remove(t.Context(), id))
			}
		}
	}
	if left == 0 {
		t.Error("no process was killed while it made a database")
	}
}

func makeUntilKilled(t *testing.T, folder string) {
	d := datastore.NewFiles(folder)
	for n := 0; ; n++ {
		created, forked := fmt.Sprint("new-", n), fmt.Sprint("fork-", n)
		harness.Must(t, d.Create(t.Context(), created))
		_, err := d.Fork(t.Context(), "base", forked, fleet.Moment{})
		harness.Must(t, err)
		if n == 0 {
			fmt.Println("begun")
		}
		harness.Must(t, errors.Join(d.Remove(t.Context(), created), d.Remove(t.Context(), forked)))
	}
}
