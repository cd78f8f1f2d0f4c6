package origin_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/origin"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/harness"
)

// world is a log and the states that it has had.
type world struct {
	*sqlite.Engine
	live   map[string]int64 // key → revision
	states map[int64][]string
	last   int64
}

func row(group, resource, key, value string) dialect.Write {
	namespace, name, found := strings.Cut(key, "/")
	if !found {
		namespace, name = "", key
	}
	return dialect.Write{Operation: dialect.Create, Group: group, Resource: resource, Key: key, Namespace: namespace, Name: name, UID: "uid-" + key,
		WrittenAt: time.Now().UnixMilli(), User: "somebody", Labels: "{}", Fields: "{}", Value: []byte(value)}
}

// commit writes an object, or deletes it if value is "".
func (w *world) commit(t *testing.T, one dialect.Write) {
	t.Helper()
	id := one.Group + "/" + one.Resource + "/" + one.Key
	if one.Replaces = w.live[id]; one.Replaces != 0 {
		one.Operation = dialect.Update
	}
	if len(one.Value) == 0 {
		if one.Replaces == 0 {
			return
		}
		one.Operation = dialect.Delete
	}
	committed, err := w.Commit(t.Context(), []dialect.Write{one})
	harness.Must(t, err)
	if !committed.Landed[0] {
		t.Fatalf("%s conflicts", id)
	}
	w.last = committed.Last
	delete(w.live, id)
	if one.Operation != dialect.Delete {
		w.live[id] = w.last
	}
	w.states[w.last] = state(t, w.Engine, w.last)
}

// state returns what others can see of a state.
func state(t *testing.T, r dialect.Reader, revision int64) (all []string) {
	t.Helper()
	err := inspect.Snapshot(t.Context(), r, revision, func(row *dialect.LogRow) error {
		if row.Group == "things.example.com" || row.Key == "ns/plain" {
			all = append(all, fmt.Sprintf("%s@%d %s %s", row.Key, row.ID, row.Operation, row.Value))
		}
		return nil
	})
	harness.Must(t, err)
	slices.Sort(all)
	return all
}

const secretType = `{"type":%q,"data":{"text":%q}}`

// fill writes versions of objects, the first part of which then leaves the log.
func (w *world) fill(t *testing.T) (packed int64) {
	w.live, w.states = map[string]int64{}, map[int64][]string{}
	w.commit(t, row("sqube.io", "shared_keys", "cluster", `{"sealed":"KEYS-OF-THE-ORIGINAL"}`))
	w.commit(t, row("", "secrets", "ns/was-token", fmt.Sprintf(secretType, "kubernetes.io/service-account-token", "FORMER-TOKEN")))
	w.commit(t, row("", "secrets", "ns/was-token", ""))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 150 {
		if i == 100 {
			packed = w.last
		}
		value := fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("text ", random.IntN(100)))
		if random.IntN(6) == 0 {
			value = ""
		}
		w.commit(t, row("things.example.com", "things", fmt.Sprint("ns/", random.IntN(12)), value))
		switch i {
		case 20, 120:
			w.commit(t, row("", "secrets", "ns/token", fmt.Sprintf(secretType, "kubernetes.io/service-account-token", fmt.Sprint("TOKEN-", i))))
			w.commit(t, row("", "secrets", "kube-system/bootstrap-token-abcdef", `{"$encrypted":"Qk9PVFNUUkFQ"}`))
			w.commit(t, row("coordination.k8s.io", "leases", "ns/held", `{}`))
			w.commit(t, row("", "configmaps", "kube-system/extension-apiserver-authentication", `{"data":{"client-ca-file":"of the original"}}`))
			w.commit(t, row("", "secrets", "ns/plain", fmt.Sprintf(secretType, "Opaque", fmt.Sprint("plain-", i))))
		}
	}
	for {
		n, err := w.Compact(t.Context(), packed, 1000, history.Pack(nil))
		harness.Must(t, err)
		if n == 0 {
			return packed
		}
	}
}

// check checks what a fork has of the states of its original, and goes on with it.
func (w *world) check(t *testing.T, fork *sqlite.Engine, at, begins int64) {
	t.Helper()
	for revision, want := range w.states {
		if revision <= at {
			if got := state(t, fork, revision); !slices.Equal(got, want) {
				t.Errorf("at revision %d, the fork at %d has %q, not %q", revision, at, got, want)
			}
		}
	}
	if got := state(t, fork, begins); !slices.Equal(got, w.states[at]) {
		t.Errorf("the fork at %d begins with %q, not %q", at, got, w.states[at])
	}
	err := inspect.Each(t.Context(), fork, func(row *dialect.LogRow) error {
		if strings.Contains(row.Key, "token") || row.Resource == "leases" || row.ReplacedBy == 0 && row.Resource == "configmaps" && row.Operation != dialect.Delete || row.Group == dialect.InternalGroup {
			t.Errorf("the fork at %d has %s %s", at, row.Resource, row.Key)
		}
		return nil
	})
	harness.Must(t, err)
	unread := func(sqlstore.Resource, string, []byte) ([]byte, error) { return nil, inspect.ErrUnread }
	_, err = inspect.Check(t.Context(), fork, unread, func(f inspect.Finding) {
		if !strings.Contains(f.What, "namespace") { // the test has none
			t.Errorf("the fork at %d: %+v", at, f)
		}
	})
	harness.Must(t, err)
	store := storetest.Start(t, fork, sqlstore.Options{})
	revision, err := store.Write(t.Context(), sqlstore.Internal(sqlstore.Resource{Group: "things.example.com", Name: "things"}, "ns/new", nil, []byte(`{}`)))
	if err != nil || revision != begins+1 {
		t.Errorf("the first write to the fork, which begins at %d, gets revision %d, %v", begins, revision, err)
	}
	harness.Must(t, store.Close())
}

// TestFork forks a log, in files and in memory, at moments that are in the log, and in what has left it.
func TestFork(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e, err := sqlite.Open(t.Context(), path)
	harness.Must(t, err)
	file := &world{Engine: e}
	packed := file.fill(t)
	if e, err = sqlite.OpenMemory(t.Context()); err != nil {
		t.Fatal(err)
	}
	memory := &world{Engine: e}
	if got := memory.fill(t); got != packed || memory.last != file.last {
		t.Fatal("the two differ")
	}
	defer e.Close()
	moments := []int64{0, file.last - 20, packed + 1, packed, packed - 1, packed - 40, 40}
	for i, at := range moments {
		var begins int64
		change := func(c *sqlite.Engine) (err error) {
			begins, err = origin.Fork(t.Context(), c, origin.At{Revision: at})
			return err
		}
		want := at
		if at == 0 {
			want = file.last
		}
		to := filepath.Join(t.TempDir(), "fork.db")
		clone := func() error { return file.Clone(t.Context(), to) }
		if i%2 == 1 { // it is asleep
			harness.Must(t, file.Close())
			clone = func() error { return sqlite.CloneFile(path, to) }
		}
		harness.Must(t, clone())
		harness.Must(t, sqlite.Adopt(t.Context(), to, change))
		if i%2 == 1 {
			file.Engine, err = sqlite.Open(t.Context(), path)
			harness.Must(t, err)
		}
		harness.Must(t, sqlite.Verify(t.Context(), to))
		content, err := os.ReadFile(to)
		harness.Must(t, err)
		for _, secret := range []string{"KEYS-OF", "FORMER-TOKEN", "TOKEN-", "Qk9PVFNUUkFQ"} {
			if bytes.Contains(content, []byte(secret)) {
				t.Errorf("the file of the fork at %d has %s", at, secret)
			}
		}
		opened, err := sqlite.Open(t.Context(), to)
		harness.Must(t, err)
		file.check(t, opened, want, begins)

		opened, err = memory.CloneMemory(t.Context())
		harness.Must(t, err)
		harness.Must(t, change(opened))
		memory.check(t, opened, want, begins)
	}
	file.commit(t, row("things.example.com", "things", "ns/later", `{}`))
	harness.Must(t, file.Close())
	for _, at := range []int64{-1, file.last + 1} {
		to := filepath.Join(t.TempDir(), "fork.db")
		harness.Must(t, sqlite.CloneFile(path, to))
		err := sqlite.Adopt(t.Context(), to, func(c *sqlite.Engine) error {
			_, err := origin.Fork(t.Context(), c, origin.At{Revision: at})
			return err
		})
		if err == nil {
			t.Errorf("a fork at revision %d succeeds", at)
		}
	}
}

// TestForkWhileWritten forks a log again and again while it is written to: a fork has a state that has been, with every commit that was
// acknowledged before.
func TestForkWhileWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e, err := sqlite.Open(t.Context(), path)
	harness.Must(t, err)
	defer e.Close()
	ctx, stop := context.WithCancel(t.Context())
	var acknowledged dialect.Newest
	written := make(chan error, 1)
	go func() {
		var last int64
		for n := 0; ; n++ { // two rows in each commit, of which one grows
			w := row("things.example.com", "things", "ns/same", strings.Repeat("x", n%9000))
			if w.Replaces = last; last != 0 {
				w.Operation = dialect.Update
			}
			committed, err := e.Commit(ctx, []dialect.Write{w, row("things.example.com", "things", fmt.Sprint("ns/", n), `{}`)})
			if ctx.Err() != nil { // then the error can be any
				err = nil
			}
			if ctx.Err() != nil || err != nil {
				written <- err
				return
			}
			last = committed.Last - 1
			acknowledged.Raise(committed.Last)
		}
	}()
	for i := range 20 {
		before := acknowledged.Load()
		to := filepath.Join(t.TempDir(), fmt.Sprint(i, ".db"))
		var begins int64
		harness.Must(t, e.Clone(t.Context(), to))
		err := sqlite.Adopt(t.Context(), to, func(c *sqlite.Engine) (err error) {
			begins, err = origin.Fork(t.Context(), c, origin.At{})
			return err
		})
		harness.Must(t, err)
		harness.Must(t, sqlite.Verify(t.Context(), to))
		fork, err := sqlite.OpenReader(t.Context(), to)
		harness.Must(t, err)
		var rows, newest int64
		err = fork.Query(t.Context(), "SELECT count(*), coalesce(max(id), 0) FROM log", nil, func(row dialect.Row) error { return row.Scan(&rows, &newest) })
		if err != nil || begins < before || rows != begins-1 || begins > 1 && newest != begins {
			t.Errorf("a fork has %d rows up to %d and begins at %d, %v; before, %d was acknowledged", rows, newest, begins, err, before)
		}
		harness.Must(t, fork.Close())
	}
	stop()
	harness.Must(t, <-written)
}
