package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/sqlstore"
)

// deletedResource has the databases of deleted clusters by their ids, which are no objects of the API.
var deletedResource = sqlstore.Resource{Group: sqlstore.InternalGroup, Name: "fleet_deleted"}

// deleted is the record of a deleted database.
type deleted struct {
	// Namespace and Name are those of the cluster, which alone can get it back.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// At is when the cluster was deleted, and Until how long the database is kept.
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
}

const (
	// defaultKeepDeleted is for how long a database is kept, unless the cluster says otherwise.
	defaultKeepDeleted = 24 * time.Hour
	// removalDelay is for how long after its time a database can't be taken back, but is still there: an undo that came in time has taken it
	// back by then.
	removalDelay = time.Minute
)

func keepDeleted(o *v1alpha1.Cluster) time.Duration {
	if o.Spec.KeepDeleted == nil {
		return defaultKeepDeleted
	}
	return o.Spec.KeepDeleted.Duration
}

func deletedMessage(keep time.Duration) string {
	if keep <= 0 {
		return "The cluster was deleted, and its database is removed."
	}
	return fmt.Sprintf("The cluster was deleted. Undoing the deletion within %s brings it back.", keep)
}

// deletedAlarm rings when a deleted database is removed.
type deletedAlarm struct {
	fleet *Fleet
	id    string
	alarm alarm
}

// ring implements ringer.
func (d *deletedAlarm) ring(time.Time) {
	d.fleet.queue.Add(item{databases, types.NamespacedName{Name: d.id}})
}

// discard puts the database of a cluster among the deleted ones.
func (f *Fleet) discard(ctx context.Context, c *cluster, keep time.Duration) error {
	c.mu.Lock()
	recorded := c.recorded
	c.mu.Unlock()
	if recorded || c.id == "" {
		return nil
	}
	now := time.Now()
	d := deleted{Namespace: c.name.Namespace, Name: c.name.Name, At: now, Until: now.Add(keep)}
	value, err := json.Marshal(d)
	if err != nil {
		return err
	}
	w := sqlstore.Internal(deletedResource, c.id, nil, value)
	w.UID = c.id
	if _, err := f.host.Store().Write(ctx, w); err != nil && !errors.Is(err, sqlstore.ErrConflict) {
		return fmt.Errorf("recording that the database %s was deleted: %w", c.id, err)
	}
	c.mu.Lock()
	c.recorded = true
	c.mu.Unlock()
	f.scheduleRemoval(c.id, d, keep)
	return nil
}

func (f *Fleet) scheduleRemoval(id string, d deleted, keep time.Duration) {
	at := d.Until
	if keep > 0 {
		at = at.Add(removalDelay)
	}
	a := &deletedAlarm{fleet: f, id: id}
	f.alarms.set(&a.alarm, at, a)
}

// scheduleRemovals sets the alarms of all deleted databases.
func (f *Fleet) scheduleRemovals(ctx context.Context) error {
	return f.eachDeleted(ctx, func(id string, d deleted) { f.scheduleRemoval(id, d, d.Until.Sub(d.At)) })
}

// eachDeleted calls yield with all deleted databases.
func (f *Fleet) eachDeleted(ctx context.Context, yield func(id string, d deleted)) error {
	q := sqlstore.Query{Resource: deletedResource}
	for {
		page, err := f.host.Store().Page(ctx, q)
		if err != nil {
			return err
		}
		for _, record := range page.Records {
			d := deleted{}
			if err := json.Unmarshal(record.Value, &d); err != nil {
				return fmt.Errorf("the record of the deleted database %s can't be read: %w", record.Key, err)
			}
			yield(record.Key, d)
		}
		if !page.More {
			return nil
		}
		q.After = page.Records[len(page.Records)-1].Key
	}
}

// deleted returns the record of a deleted database, nil if it is not deleted.
func (f *Fleet) deleted(ctx context.Context, id string) (*deleted, *sqlstore.Record, error) {
	record, _, err := f.host.Store().Get(ctx, deletedResource, id)
	if err != nil || record == nil {
		return nil, nil, err
	}
	d := &deleted{}
	if err := json.Unmarshal(record.Value, d); err != nil {
		return nil, nil, fmt.Errorf("the record of the deleted database %s can't be read: %w", id, err)
	}
	return d, record, nil
}

// adoptable reports whether a new Cluster with a name can have a deleted database: only one with the same name can.
func (f *Fleet) adoptable(ctx context.Context, id string, name types.NamespacedName) (bool, error) {
	select {
	case <-f.hosting:
	default:
		return false, errors.New("the server does not host clusters yet: try again")
	}
	d, _, err := f.deleted(sqlstore.WithTransaction(ctx, nil), id)
	return d != nil && d.Namespace == name.Namespace && d.Name == name.Name && time.Now().Before(d.Until), err
}

// adopt takes a database back, and reports whether it was among the deleted ones.
func (f *Fleet) adopt(ctx context.Context, id string) (bool, error) {
	_, record, err := f.deleted(ctx, id)
	if err != nil || record == nil {
		return false, err
	}
	return true, f.unrecord(ctx, id, record)
}

// unrecord removes the record of a deleted database.
func (f *Fleet) unrecord(ctx context.Context, id string, record *sqlstore.Record) error {
	_, err := f.host.Store().Write(ctx, sqlstore.InternalDeletion(deletedResource, id, record))
	if errors.Is(err, sqlstore.ErrConflict) {
		return nil // another server has removed it
	}
	return err
}

// removeDeleted removes a deleted database if its time is over.
func (f *Fleet) removeDeleted(ctx context.Context, id string) error {
	d, record, err := f.deleted(ctx, id)
	if err != nil || d == nil {
		return err
	}
	if time.Now().Before(d.Until) {
		f.scheduleRemoval(id, *d, d.Until.Sub(d.At))
		return nil
	}
	o, err := f.get(ctx, types.NamespacedName{Namespace: d.Namespace, Name: d.Name})
	switch {
	case err == nil && o.Annotations[v1alpha1.DatabaseAnnotation] == id:
		if o.DeletionTimestamp == nil {
			return nil // it was taken back
		}
		return errors.New("the Cluster of the deleted database is not gone yet")
	case err != nil && !apierrors.IsNotFound(err):
		return err
	}
	if err := f.config.Databases.Remove(ctx, id); err != nil {
		return fmt.Errorf("removing the database %s of the deleted cluster %s/%s: %w", id, d.Namespace, d.Name, err)
	}
	return f.unrecord(ctx, id, record)
}

// reportUnknown logs which databases belong to nothing that the host knows. They are never removed: after the host was restored from an older
// backup, they are the clusters that it has forgotten.
func (f *Fleet) reportUnknown(ctx context.Context) {
	unknown, err := f.unknown(ctx, func(yield func(string)) error {
		return f.eachDeleted(ctx, func(id string, _ deleted) { yield(id) })
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		slog.Error("the databases of clusters can't be listed", "error", err)
	case len(unknown) > 0:
		slog.Warn("there are databases of clusters that the host does not know, as after its restore from an older backup; they stay",
			"count", len(unknown), "ids", strings.Join(unknown[:min(len(unknown), maxReported)], " "))
	}
}

// unknown returns the ids of databases that are neither those of clusters nor among the deleted ones.
func (f *Fleet) unknown(ctx context.Context, eachDeleted func(yield func(id string)) error) (unknown []string, err error) {
	ids, err := f.config.Databases.IDs(ctx) // before the clusters, since one can be made meanwhile
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	if err := eachDeleted(func(id string) { known[id] = true }); err != nil {
		return nil, err
	}
	f.mu.RLock()
	for _, c := range f.clusters {
		known[c.id] = true
	}
	f.mu.RUnlock()
	for _, id := range ids {
		if !known[id] {
			unknown = append(unknown, id)
		}
	}
	return unknown, nil
}

// maxReported is how many unknown databases are named.
const maxReported = 10
