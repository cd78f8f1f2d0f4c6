package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/server/wholefile"
	"github.com/sqube/sqube/sqlstore/logbackup"
)

// hostBackup is the name of the backup of the server's own database beside those of its clusters, NAMESPACE/NAME. No namespace has it.
const hostBackup = "_host"

// backupAll backs up a server's own database and those of the clusters that it hosts. If one fails, the others are still backed up.
func backupAll(cmd *cobra.Command, d datastore.Datastore, folder string) error {
	if err := wholefile.MakeFolder(folder, 0o700); err != nil {
		return err
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		return errors.Join(err, fmt.Errorf("%s is not empty: give another folder", folder))
	}
	if err := backupTo(cmd, d, filepath.Join(folder, hostBackup+".db")); err != nil {
		return err
	}
	hosted, err := d.HostedClusters(cmd.Context())
	if err != nil {
		return err
	}
	var failed error
	for _, name := range slices.Sorted(maps.Keys(hosted)) {
		file := filepath.Join(folder, filepath.FromSlash(name)+".db")
		one, err := d.Hosted(cmd.Context(), hosted[name])
		if err == nil {
			err = errors.Join(wholefile.MakeFolder(filepath.Dir(file), 0o700), backupTo(cmd, one, file))
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("the cluster %s: %w", name, err))
		}
	}
	return failed
}

// followingAll follows a server's own database and those of the clusters that it hosts. A cluster whose files do not change costs a look at
// them.
type followingAll struct {
	*followOptions
	host     datastore.Datastore
	clusters map[string]string       // name → the id of its database
	state    map[string]fileState    // name → what is in the backup
	open     map[string]*oneFollowed // those that are awake
	reported map[string]time.Time    // when the last failure was logged
}

type oneFollowed struct {
	*logbackup.Follower
	readers readers
}

// fileState says whether a database has changed.
type fileState struct {
	id        string
	database  time.Time
	log       time.Time
	size      int64
	logLength int64
}

func stateOf(id string, d datastore.Datastore) fileState {
	s := fileState{id: id}
	if info, err := os.Stat(d.Path); err == nil {
		s.database, s.size = info.ModTime(), info.Size()
	}
	if info, err := os.Stat(d.Path + "-wal"); err == nil {
		s.log, s.logLength = info.ModTime(), info.Size()
	}
	return s
}

// settled reports whether a later change has another time, however coarse the clock of the file system is.
func (s fileState) settled() bool {
	return time.Since(s.database) > time.Second && time.Since(s.log) > time.Second
}

const (
	// listInterval is how often followingAll looks for new clusters.
	listInterval = 10 * time.Second
	// followedAtOnce is how many clusters it backs up at once.
	followedAtOnce = 4
)

// runAll is run for a server and the clusters that it hosts.
func (f *followOptions) runAll(cmd *cobra.Command, d datastore.Datastore) (err error) {
	ctx := cmd.Context()
	place, err := logbackup.ParsePlace(f.place)
	if err != nil {
		return err
	}
	lost, release, err := place.Hold(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	defer closing(&err, release)
	f.options.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	all := &followingAll{followOptions: f, host: d, state: map[string]fileState{}, open: map[string]*oneFollowed{}, reported: map[string]time.Time{}}
	if err := all.list(ctx); err != nil {
		return err
	}
	_ = all.step(ctx) // it logs what fails
	fmt.Fprintf(cmd.OutOrStdout(), "%s follows %s and %d clusters\n", place, d, len(all.clusters)-1)
	ticker, listed := time.NewTicker(f.options.Interval), time.Now()
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-lost:
			return fmt.Errorf("%s: %w", place, logbackup.ErrHeld)
		case <-ctx.Done():
		case <-ticker.C:
			if time.Since(listed) >= listInterval {
				listed = time.Now()
				all.report(hostBackup, all.list(ctx))
			}
			_ = all.step(ctx)
		}
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastStep)
	defer cancel()
	if failed := errors.Join(all.list(bounded), all.step(bounded)); failed != nil {
		return fmt.Errorf("%s lacks later revisions, which could not be written: %w", place, failed)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s holds %s and %d clusters\n", place, d, len(all.clusters)-1)
	return nil
}

// list reads which clusters there are. Backups of those that are gone stay.
func (a *followingAll) list(ctx context.Context) error {
	clusters, err := a.host.HostedClusters(ctx)
	if err != nil {
		return err
	}
	clusters[hostBackup] = ""
	a.clusters = clusters
	return nil
}

// step backs up what has changed.
func (a *followingAll) step(ctx context.Context) (failed error) {
	var mu sync.Mutex
	var stepping sync.WaitGroup
	slots := make(chan struct{}, followedAtOnce)
	for name, id := range a.clusters {
		d := a.host
		if name != hostBackup {
			var err error
			if d, err = a.host.Hosted(ctx, id); err != nil { // it is being removed
				continue
			}
		}
		now := stateOf(id, d)
		mu.Lock()
		done := a.state[name] == now
		mu.Unlock()
		if done {
			continue
		}
		slots <- struct{}{}
		stepping.Go(func() {
			defer func() { <-slots }()
			mu.Lock()
			follower := a.open[name]
			mu.Unlock()
			follower, err := a.one(ctx, name, d, follower)
			mu.Lock()
			defer mu.Unlock()
			a.report(name, err)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
			} else if now.settled() {
				a.state[name] = now
			}
			if a.open[name] = follower; now.log.IsZero() && name != hostBackup { // it sleeps
				delete(a.open, name)
			}
		})
	}
	stepping.Wait()
	return failed
}

// one backs up one database.
func (a *followingAll) one(ctx context.Context, name string, d datastore.Datastore, follower *oneFollowed) (*oneFollowed, error) {
	if follower != nil && follower.readers.datastore.Path == d.Path {
		return follower, follower.Step(ctx)
	}
	place, err := logbackup.ParsePlace(below(a.place, name))
	if err != nil {
		return nil, err
	}
	follower = &oneFollowed{readers: readers{datastore: d}}
	if follower.Follower, err = logbackup.Follow(ctx, place, follower.readers.open, a.options); err != nil {
		return nil, err
	}
	return follower, nil
}

// below returns the place with a name below another one.
func below(place, name string) string {
	path, query, found := strings.Cut(place, "?")
	if !strings.HasPrefix(place, "s3://") {
		return filepath.Join(place, filepath.FromSlash(name))
	}
	if path = strings.TrimSuffix(path, "/") + "/" + name; found {
		path += "?" + query
	}
	return path
}

// reportInterval is how often to log that a backup keeps failing.
const reportInterval = time.Minute

// report logs a failure.
func (a *followingAll) report(name string, err error) {
	switch last, failing := a.reported[name]; {
	case err == nil:
		delete(a.reported, name)
	case !failing || time.Since(last) >= reportInterval:
		a.reported[name] = time.Now()
		a.options.Log.Error("the backup fails; trying again", "of", name, "error", err)
	}
}
