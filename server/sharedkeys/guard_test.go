package sharedkeys

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// guard is that of a server whose keys are named by words, first the authorities, then, after "|", the keys for tokens.
func guard(store *sqlstore.Store, words string) *Guard {
	ca, accounts, _ := strings.Cut(words, "|")
	keys := func(words string) (keys []Key) {
		for _, word := range strings.Fields(words) {
			keys = append(keys, NewKey([]byte(word), "/pki/"+word))
		}
		return keys
	}
	return &Guard{Store: store, Keys: func(pki.Shared) (Keys, error) { return Keys{keys(ca), keys(accounts)}, nil }}
}

// begin does what a start does.
func begin(ctx context.Context, g *Guard) error {
	if err := g.Check(ctx, nil); err != nil {
		return err
	}
	return g.Record(ctx, nil)
}

func TestGuard(t *testing.T) {
	t.Parallel()
	for name, starts := range map[string][]struct{ keys, refused string }{
		"the same keys": {{"ca|sa", ""}, {"ca|sa", ""}},
		"other keys": {
			{"ca|sa", ""}, {"ca2|sa2", "another CA and another service account key"}, {"ca2|sa", "another CA,"}, {"ca|sa2", "another service account key,"}, {"ca|sa", ""},
		},
		"an authority is replaced":  {{"ca|sa", ""}, {"ca ca2|sa", ""}, {"ca|sa", ""}, {"ca2 ca|sa", ""}, {"ca2|sa", ""}, {"ca ca2|sa", ""}, {"ca2|sa", ""}, {"ca|sa", "another CA"}},
		"the key for tokens, too":   {{"ca|sa", ""}, {"ca|sa sa2", ""}, {"ca|sa2 sa", ""}, {"ca|sa2", ""}, {"ca|sa", "another service account key"}},
		"own authorities beside":    {{"own1 ca|sa", ""}, {"own2 ca|sa", ""}, {"own1 ca|sa", ""}, {"own3|sa", "another CA"}},
		"another process signs":     {{"ca|", ""}, {"ca|sa", ""}, {"ca|", ""}, {"ca|sa2", "another service account key"}, {"ca2|", "another CA"}},
		"the error names the files": {{"ca|sa", ""}, {"ca2|sa2", "(/pki/ca, /pki/sa; here they are /pki/ca2, /pki/sa2)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			for i, start := range starts {
				err := begin(t.Context(), guard(store, start.keys))
				if (err != nil) != (start.refused != "") || err != nil && !strings.Contains(err.Error(), start.refused) {
					t.Errorf("start %d, with %q: %v", i+1, start.keys, err)
				}
			}
		})
	}
}

// TestReplaceKeys replaces a cluster's keys with the flag that the error names. It may stay, but replaces no other keys.
func TestReplaceKeys(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	replace := ""
	for i, keys := range []string{"ca|sa", "ca2|sa2"} {
		g := guard(store, keys)
		if err := begin(t.Context(), g); i > 0 {
			_, replace, _ = strings.Cut(err.Error(), "--replace-keys=")
		}
		g.Replace = replace
		harness.Must(t, begin(t.Context(), g))
	}
	g := guard(store, "ca3|sa3")
	if g.Replace = replace; begin(t.Context(), g) == nil {
		t.Error("the flag replaces keys that it does not name")
	}
	if begin(t.Context(), guard(store, "ca|sa")) == nil {
		t.Error("the replaced keys are still taken")
	}
}

// TestFirstKeysWin starts servers with different keys on an empty database at once.
func TestFirstKeysWin(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	var won atomic.Int32
	var checked, ended sync.WaitGroup
	for _, keys := range strings.Fields("a|a b|b c|c d|d e|e f|f") {
		checked.Add(1)
		ended.Go(func() {
			g := guard(store, keys)
			if err := g.Check(t.Context(), nil); err != nil {
				t.Error(err)
			}
			checked.Done()
			checked.Wait()
			if err := g.Record(t.Context(), nil); err == nil {
				won.Add(1)
			} else if !strings.Contains(err.Error(), "another CA and another service account key") {
				t.Error(err)
			}
		})
	}
	ended.Wait()
	if won.Load() != 1 {
		t.Errorf("%d servers have won", won.Load())
	}
	record, _, err := store.Get(t.Context(), Resource, fingerprintsName)
	var kept fingerprints
	if err != nil || json.Unmarshal(record.Value, &kept) != nil || len(kept.CA) != 1 || kept.Name != fingerprintsName || kept.Host == "" || kept.WrittenAt.IsZero() {
		t.Errorf("the row is %s, %v", record.Value, err)
	}
}

// fullDisk is a database whose disk is full.
type fullDisk struct{ dialect.Engine }

func (fullDisk) Commit(context.Context, []dialect.Write) (dialect.Committed, error) {
	return dialect.Committed{}, dialect.ErrFull
}

// TestStartsOnAFullDisk starts on an older sqube's database, so that clients can free space.
func TestStartsOnAFullDisk(t *testing.T) {
	t.Parallel()
	engine, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sqube.db"))
	harness.Must(t, err)
	store, err := sqlstore.Open(t.Context(), fullDisk{engine}, sqlstore.Options{})
	harness.Must(t, err)
	defer store.Close()
	if err := begin(t.Context(), guard(store, "ca|sa")); err != nil {
		t.Error(err)
	}
}
