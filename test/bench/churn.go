package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
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

// churnPart is the measurement of one server, and the resulting lines of the table.
type churnPart struct {
	name    string
	keeps   bool // all versions
	lines   []string
	measure func(*session, context.Context) ([]figure, error)
}

var churnParts = []churnPart{
	{"size", false, []string{"database, in sizes of its objects"}, (*session).churnSize},
	{"costs", true, churnCostLines(), (*session).churnCosts},
}

// churnAll repeatedly updates the same objects and prints, for each engine, how much larger than its objects the database is
// afterwards, and how much more requests cost while all versions are kept. The argument selects one of these parts.
func churnAll(ctx context.Context, o options, only []string, out io.Writer) error {
	lines := [][]string{{fmt.Sprintf("after %d updates of %d objects", o.sizes.Updates, o.sizes.churned())}}
	for _, engine := range o.sqube {
		lines[0] = append(lines[0], "sqube-"+engine)
	}
	for _, part := range churnParts {
		if len(only) > 0 && only[0] != part.name {
			continue
		}
		first := len(lines)
		for _, line := range part.lines {
			lines = append(lines, []string{line})
		}
		for _, engine := range o.sqube {
			figures, err := churning(ctx, o, engine, part)
			if err != nil {
				return fmt.Errorf("%s: %w", engine, err)
			}
			for i, f := range figures {
				lines[first+i] = append(lines[first+i], fmt.Sprintf("%.2f", f))
			}
		}
	}
	return writeMarkdown(out, lines)
}

// churning measures a part.
func churning(ctx context.Context, o options, engine string, part churnPart) (_ []figure, err error) {
	b, cleanup, err := buildDirectory(ctx, o)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	retention := o.sizes.Retention
	if part.keeps {
		retention = 24 * time.Hour
	}
	o.flags = slices.Concat(o.flags, []string{"--retention", retention.String()})
	progress("sqube-%s: starting with --retention %s", engine, retention)
	server, err := squbeOn(o, b, engine).open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	dialer, err := newDialer(server.Kubeconfig)
	if err != nil {
		return nil, err
	}
	s := &session{server: server, dialer: dialer, sizes: o.sizes, retention: retention}
	if err := s.makeNamespace(ctx); err != nil {
		return nil, err
	}
	return part.measure(s, ctx)
}

// churnSize returns the size of the database in multiples of its objects' size.
func (s *session) churnSize(ctx context.Context) ([]figure, error) {
	empty, err := s.server.DataSize()
	if err == nil {
		err = s.populate(ctx)
	}
	if err == nil {
		err = s.churn(ctx)
	}
	if err != nil {
		return nil, err
	}
	size, err := s.sizeOver(ctx, empty)
	return []figure{size}, err
}

// sizeOver returns the size of the database in multiples of its objects' size, after giving the server time to settle. Its size
// before the objects, empty, is subtracted.
func (s *session) sizeOver(ctx context.Context, empty int64) (figure, error) {
	full, err := s.server.DataSize()
	if err != nil {
		return 0, err
	}
	progress("%s: the database has %d bytes; waiting for %s", s.server.Name, full, s.sizes.Settle)
	if err := wait(ctx, s.sizes.Settle); err != nil {
		return 0, err
	}
	if full, err = s.server.DataSize(); err != nil {
		return 0, err
	}
	var collections []string
	for _, kind := range churnKinds {
		collections = append(collections, kind.collection)
	}
	live, err := s.liveBytes(ctx, collections)
	progress("%s: the objects have %d bytes; the database had %d before them and has %d", s.server.Name, live, empty, full)
	return figure(full-empty) / figure(live), err
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

// churn updates the objects in turn.
func (s *session) churn(ctx context.Context) error {
	if s.sizes.Direct {
		return s.updateDirectly(ctx)
	}
	const clients, part = 32, 50_000
	for from := 0; from < s.sizes.Updates; from += part {
		r, err := s.load(ctx, clients, min(part, s.sizes.Updates-from), func(ctx context.Context, c *client, i int) error {
			return s.churnUpdate(ctx, c, from+i)
		})
		if err != nil {
			return err
		}
		progress("%s: %d of %d updates, %.0f per s", s.server.Name, from+r.Operations, s.sizes.Updates, r.PerSecond)
	}
	return nil
}

// populate creates the objects.
func (s *session) populate(ctx context.Context) error {
	pod, err := podBodies(s.sizes)
	if err != nil {
		return err
	}
	_, err = s.load(ctx, 16, s.sizes.churned(), func(ctx context.Context, c *client, i int) error {
		kind, body := churnKinds[i%len(churnKinds)], pod(i)
		if kind.body != "" {
			body = fmt.Appendf(nil, kind.body, podName(i))
		}
		return c.do(ctx, post(kind.collection, body))
	})
	return err
}

// churnUpdate makes the ith update.
func (s *session) churnUpdate(ctx context.Context, c *client, i int) error {
	object := i % s.sizes.churned()
	kind := churnKinds[object%len(churnKinds)]
	path := kind.collection + "/" + podName(object) + kind.subresource
	return c.do(ctx, patch(path, mediaMergePatch, fmt.Appendf(nil, kind.patch, i%1_000_000)))
}

// churnRequests are the requests whose cost is compared.
var churnRequests = []struct {
	name string
	n    int // at most
	do   func(*session, context.Context, *client, int) error
}{
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

// churnCostLines names what churnCosts returns.
func churnCostLines() (lines []string) {
	for _, request := range churnRequests {
		lines = append(lines, request.name+" while all versions are kept: CPU, of that before", "– p50, of that before")
	}
	return append(lines,
		"all versions due at once: p99 of a write meanwhile, of that before", "– longest wait of a write, ms", "– before, ms",
		"database afterwards, in sizes of its objects")
}

// churnCosts returns what each of those requests costs the server and Postgres, and how long it takes, while all updates are
// kept, as multiples of the figures before. Then it lets the server remove all of them at once, and returns how long writes
// take meanwhile, and the size of the database afterwards.
func (s *session) churnCosts(ctx context.Context) (figures []figure, err error) {
	empty, err := s.server.DataSize()
	if err != nil {
		return nil, err
	}
	if err := s.populate(ctx); err != nil {
		return nil, err
	}
	before, err := s.costsAfterStart(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.churn(ctx); err != nil {
		return nil, err
	}
	after, err := s.costsAfterStart(ctx)
	if err != nil {
		return nil, err
	}
	for i, request := range churnRequests {
		b, a := before[i].result(churnClients, len(before[i].latencies)), after[i].result(churnClients, len(after[i].latencies))
		bCPU, aCPU := before[i].cpuPerRequest(), after[i].cpuPerRequest()
		progress("%s: %s: CPU %.0f, then %.0f µs; p50 %.2f, then %.2f ms", s.server.Name, request.name, bCPU, aCPU, b.P50, a.P50)
		figures = append(figures, aCPU/bCPU, a.P50/b.P50)
	}
	calm := after[len(after)-1].latencies
	busy, err := s.dueAtOnce(ctx)
	if err != nil {
		return nil, err
	}
	figures = append(figures, milliseconds(quantile(busy, 99))/milliseconds(quantile(calm, 99)), milliseconds(quantile(busy, 100)), milliseconds(quantile(calm, 100)))
	size, err := s.sizeOver(ctx, empty)
	return append(figures, size), err
}

// cpuPerRequest returns the CPU time of the server and Postgres per request, in microseconds.
func (s sample) cpuPerRequest() figure {
	return microseconds(s.cpu+s.databaseCPU) / figure(len(s.latencies))
}

// costsAfterStart restarts the server and measures the requests, once the work after a start, or after many updates, is done:
// both times the server has been up for as long.
func (s *session) costsAfterStart(ctx context.Context) ([]sample, error) {
	if err := s.server.Restart(ctx); err != nil {
		return nil, err
	}
	if _, err := s.costs(ctx); err != nil { // for caches and plans
		return nil, err
	}
	if err := wait(ctx, s.sizes.Settle); err != nil {
		return nil, err
	}
	if err := s.awaitVacuum(ctx); err != nil {
		return nil, err
	}
	return s.costs(ctx)
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

// costs measures the requests.
func (s *session) costs(ctx context.Context) (costs []sample, err error) {
	for _, request := range churnRequests {
		m, err := s.sample(ctx, churnClients, min(request.n, s.sizes.Updates), func(ctx context.Context, c *client, i int) error {
			return request.do(s, ctx, c, i)
		})
		if err != nil {
			return nil, err
		}
		costs = append(costs, m)
	}
	return costs, nil
}

// dueAtOnce restarts the server so that it removes all updates, and returns how long writes take meanwhile, sorted.
func (s *session) dueAtOnce(ctx context.Context) (latencies []time.Duration, err error) {
	retention := s.sizes.Retention.String()
	progress("%s: starting with --retention %s", s.server.Name, retention)
	if err := s.server.Restart(ctx, "--retention", retention); err != nil {
		return nil, err
	}
	began := time.Now()
	for removed := 0.0; removed < float64(s.sizes.Updates); {
		m, err := s.sample(ctx, churnClients, 200, s.churnUpdate)
		if err != nil {
			return nil, err
		}
		if removed, err = s.metric(ctx, "removed_rows_total"); err != nil {
			return nil, err
		}
		if removed == 0 {
			began = time.Now()
			continue
		}
		latencies = append(latencies, m.latencies...)
	}
	batches, err := s.metric(ctx, "compaction_batch_duration_seconds_count")
	if err != nil {
		return nil, err
	}
	seconds, err := s.metric(ctx, "compaction_batch_duration_seconds_sum")
	slices.Sort(latencies)
	progress("%s: all were removed after %s, in batches of %.1f ms on average; %d writes took %s at p50, %s at p99, %s at most", s.server.Name,
		time.Since(began).Round(time.Second), 1000*seconds/batches, len(latencies), quantile(latencies, 50), quantile(latencies, 99), quantile(latencies, 100))
	return latencies, err
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

// updateDirectly makes the updates through the store alone: the server is stopped, and this process commits, compacts and
// shrinks in its place. Each update writes the same value again.
func (s *session) updateDirectly(ctx context.Context) (err error) {
	if err := s.server.Stop(); err != nil {
		return err
	}
	engine, err := openEngine(ctx, s.server.Datastore)
	if err != nil {
		return err
	}
	objects, err := storedObjects(ctx, engine)
	if err == nil && len(objects) != s.sizes.churned() {
		err = errors.New("the database does not have the created objects")
	}
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	store, err := sqlstore.Open(ctx, engine, sqlstore.Options{Retention: s.retention})
	if err != nil {
		return err
	}
	if err := errors.Join(s.write(ctx, store, objects), store.Close()); err != nil {
		return err
	}
	return s.server.Restart(ctx)
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
