package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore"
)

// churnPhases measure what many updates of few objects cost while all versions are kept, and what they leave behind.
func churnPhases(sizes) []phase {
	const kept = " while all versions are kept"
	all := []phase{
		{phaseStart, false, (*session).start, nil},
		{"create objects", false, (*session).populate, nil},
		{"restart", false, (*session).settle, nil},
	}
	for _, r := range churnRequests {
		all = append(all, phase{r.name, false, r.measure, nil})
	}
	all = append(all, phase{"restart with all versions of updates", false, (*session).updateDirectly, nil})
	for _, r := range churnRequests {
		all = append(all, phase{r.name + kept, false, r.measure, []row{
			cpuMicros.dividedBy(r.name, "CPU, of that before"), p50.dividedBy(r.name, "p50, of that before"), longest}})
	}
	return append(all,
		phase{"restart, all versions due at once", false, (*session).dueAtOnce, []row{p99.dividedBy("write"+kept, "p99 of a write, of that before"), longest}},
		phase{"database, a while later", false, (*session).leftBehind, []row{databaseTimes}})
}

// churned is how many objects are updated repeatedly: a third each are Leases, Events and Pods.
func (s sizes) churned() int { return min(2000, s.Updates) }

// churnKinds are their kinds, with formats for the body of a new object, taking its name ("" for the pod of the other phases),
// and for the merge patch of an update, taking its number.
var churnKinds = []struct{ collection, body, subresource, patch string }{
	{
		collection: "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases",
		body:       `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},"spec":{"holderIdentity":"node","leaseDurationSeconds":40}}`,
		patch:      `{"spec":{"renewTime":"2026-01-01T00:00:00.%06dZ"}}`,
	},
	{
		collection: "/api/v1/namespaces/" + namespace + "/events",
		body: `{"apiVersion":"v1","kind":"Event","metadata":{"name":%q},"involvedObject":{"kind":"Pod","namespace":"` + namespace + `","name":%[1]q},` +
			`"reason":"BackOff","message":"Back-off restarting failed container","type":"Warning","count":1}`,
		patch: `{"count":%d}`,
	},
	{collection: podsPath, subresource: "/status", patch: `{"status":{"message":"probe %d failed"}}`},
}

// populate creates the objects.
func (s *session) populate(ctx context.Context) (result, error) {
	pod, err := podBodies(s.sizes)
	if err == nil {
		s.emptySize, err = s.server.DataSize()
	}
	if err != nil {
		return result{}, err
	}
	return s.load(ctx, 16, s.sizes.churned(), func(ctx context.Context, c *client, i int) error {
		kind, body := churnKinds[i%len(churnKinds)], pod(i)
		if kind.body != "" {
			body = fmt.Appendf(nil, kind.body, podName(i))
		}
		return c.do(ctx, post(kind.collection, body))
	})
}

// churnUpdate makes the ith update.
func (s *session) churnUpdate(ctx context.Context, c *client, i int) error {
	object := i % s.sizes.churned()
	kind := churnKinds[object%len(churnKinds)]
	path := kind.collection + "/" + podName(object) + kind.subresource
	return c.do(ctx, patch(path, mediaMergePatch, fmt.Appendf(nil, kind.patch, i%1_000_000)))
}

// churnRequest is a request whose cost is compared.
type churnRequest struct {
	name string
	n    int // at most
	do   func(*session, context.Context, *client, int) error
}

var churnRequests = []churnRequest{
	{"get", 30_000, func(s *session, ctx context.Context, c *client, i int) error {
		object := i % s.sizes.churned()
		kind := churnKinds[object%len(churnKinds)]
		return c.do(ctx, get(kind.collection+"/"+podName(object)))
	}},
	{"list", 400, func(_ *session, ctx context.Context, c *client, i int) error {
		_, err := c.discard(ctx, get(churnKinds[i%len(churnKinds)].collection))
		return err
	}},
	{"write", 6000, (*session).churnUpdate},
}

// churnClients is how many clients send them at once.
const churnClients = 8

func (r churnRequest) measure(s *session, ctx context.Context) (result, error) {
	return s.load(ctx, churnClients, min(r.n, s.sizes.Updates), func(ctx context.Context, c *client, i int) error {
		return r.do(s, ctx, c, i)
	})
}

// churnKeeps is for how long versions are kept before all are due at once.
const churnKeeps = 24 * time.Hour

// settle restarts the server and waits until the work after a start, or after many updates, is done: each time requests are measured,
// the server has been up for as long.
func (s *session) settle(ctx context.Context) (result, error) {
	if err := s.server.Restart(ctx, "--retention", churnKeeps.String()); err != nil {
		return result{}, err
	}
	for _, r := range churnRequests { // for caches and plans
		if _, err := r.measure(s, ctx); err != nil {
			return result{}, err
		}
	}
	if err := wait(ctx, s.sizes.Settle); err != nil {
		return result{}, err
	}
	return result{}, s.awaitVacuum(ctx)
}

// awaitVacuum waits until no autovacuum is under way: Postgres' CPU is counted with the requests'.
func (s *session) awaitVacuum(ctx context.Context) error {
	if !strings.HasPrefix(s.server.Datastore, "postgres:") {
		return nil
	}
	return withConnection(ctx, s.server.Datastore, func(conn *pgx.Conn) error {
		const working = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')"
		for works := true; works; {
			if err := wait(ctx, s.sizes.Rest); err != nil {
				return err
			}
			if err := conn.QueryRow(ctx, working).Scan(&works); err != nil {
				return err
			}
		}
		return nil
	})
}

// dueAtOnce restarts the server so that it removes all updates, and reports how long writes take meanwhile.
func (s *session) dueAtOnce(ctx context.Context) (result, error) {
	if err := s.server.Restart(ctx, "--retention", s.sizes.Retention.String()); err != nil {
		return result{}, err
	}
	var all sample
	for removed := 0.0; removed < float64(s.sizes.Updates); {
		m, err := s.sample(ctx, churnClients, 200, s.churnUpdate)
		if err != nil {
			return result{}, err
		}
		if removed, err = s.metric(ctx, "removed_rows_total"); err != nil {
			return result{}, err
		}
		if removed > 0 {
			all.add(m)
		}
	}
	return all.result(churnClients, len(all.latencies)), nil
}

// leftBehind reports the size of the database after giving the server time to settle.
func (s *session) leftBehind(ctx context.Context) (result, error) {
	if err := wait(ctx, s.sizes.Settle); err != nil {
		return result{}, err
	}
	var collections []string
	for _, kind := range churnKinds {
		collections = append(collections, kind.collection)
	}
	return s.sizeOver(ctx, collections)
}

// sizeOver reports the size of the database, and how often it has the size of the objects in those collections, beyond what it had
// before them.
func (s *session) sizeOver(ctx context.Context, collections []string) (result, error) {
	size, err := s.server.DataSize()
	if err != nil {
		return result{}, err
	}
	live, err := s.liveBytes(ctx, collections)
	return result{Sizes: []figure{megabytes(size)}, Times: figure(size-s.emptySize) / figure(live)}, err
}

// liveBytes returns how many bytes the objects of collections take as JSON, the format in which they are stored.
func (s *session) liveBytes(ctx context.Context, collections []string) (total int64, err error) {
	c, err := s.dialer.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer clients{c}.close()
	for _, collection := range collections {
		n, err := c.discard(ctx, get(collection))
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// metric returns a metric of the server's store.
func (s *session) metric(ctx context.Context, name string) (float64, error) {
	metrics, err := s.ask(ctx, get("/metrics"))
	if err != nil {
		return 0, err
	}
	line := regexp.MustCompile(`(?m)^sqube_store_` + name + ` (\S+)$`).FindSubmatch(metrics)
	if line == nil {
		return 0, fmt.Errorf("/metrics has no sqube_store_%s", name)
	}
	return strconv.ParseFloat(string(line[1]), 64)
}

// updateDirectly makes the updates through the store alone, which takes minutes for a million: the server is stopped, and this process
// commits in its place. Each update writes the same value again.
func (s *session) updateDirectly(ctx context.Context) (result, error) {
	if err := s.server.Stop(); err != nil {
		return result{}, err
	}
	engine, err := openEngine(ctx, s.server.Datastore)
	if err != nil {
		return result{}, err
	}
	objects, err := storedObjects(ctx, engine)
	if err == nil && len(objects) != s.sizes.churned() {
		err = errors.New("the database does not have the created objects")
	}
	if err != nil {
		return result{}, errors.Join(err, engine.Close())
	}
	store, err := sqlstore.Open(ctx, engine, sqlstore.Options{Retention: churnKeeps})
	if err != nil {
		return result{}, err
	}
	if err := errors.Join(s.write(ctx, store, objects), store.Close()); err != nil {
		return result{}, err
	}
	return s.settle(ctx)
}

// write runs writers that each update a share of the objects in turn.
func (s *session) write(ctx context.Context, store *sqlstore.Store, objects []*sqlstore.Write) error {
	const writers = 32
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	var all sync.WaitGroup
	for first := range writers {
		all.Go(func() {
			for i := first; ctx.Err() == nil; i += writers {
				if i >= len(objects) {
					i = first
				}
				n := done.Add(1)
				if n > int64(s.sizes.Updates) {
					return
				}
				w := objects[i]
				revision, err := store.Write(ctx, w)
				if err != nil {
					cancel(err)
				}
				w.Previous = &sqlstore.Record{Revision: revision, Key: w.Key, Labels: w.Labels, Fields: w.Fields, Value: w.Value}
				if n%100_000 == 0 {
					progress("%s: %d of %d updates in the store", s.server.Name, n, s.sizes.Updates)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// openEngine opens the database of a stopped server.
func openEngine(ctx context.Context, datastore string) (dialect.Engine, error) {
	if path, ok := strings.CutPrefix(datastore, "sqlite://"); ok {
		return sqlite.Open(ctx, path)
	}
	return postgres.Open(ctx, datastore)
}

// storedObjects returns the objects as updates of themselves.
func storedObjects(ctx context.Context, engine dialect.Engine) (objects []*sqlstore.Write, err error) {
	const live = "SELECT id, api_group, resource, key, namespace, name, uid, coalesce(expires_at, 0), labels, fields, value " +
		"FROM log WHERE replaced_by IS NULL AND namespace = '" + namespace + "' AND resource IN ('leases', 'events', 'pods') ORDER BY name"
	err = engine.Query(ctx, live, nil, func(row dialect.Row) error {
		r := &sqlstore.Record{}
		w := &sqlstore.Write{Operation: dialect.Update, Previous: r}
		err := row.Scan(&r.Revision, &w.Resource.Group, &w.Resource.Name, &w.Key, &w.Namespace, &w.Name, &w.UID, &w.ExpiresAt, &w.Labels, &w.Fields, &w.Value)
		r.Key, r.Labels, r.Fields, r.Value = w.Key, w.Labels, w.Fields, w.Value
		objects = append(objects, w)
		return err
	})
	return objects, err
}
