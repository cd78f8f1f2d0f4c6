package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// churnRequests are the requests whose cost is compared.
var churnRequests = []struct {
	name string
	n    int // at most
	do   func(context.Context, *client, int) error
}{
	{"get", 30_000, func(ctx context.Context, c *client, i int) error {
		object := i % churnObjects
		kind := churnKinds[object%len(churnKinds)]
		return c.do(ctx, get(kind.collection+"/"+podName(object)))
	}},
	{"list", 400, func(ctx context.Context, c *client, i int) error {
		_, err := c.discard(ctx, get(churnKinds[i%len(churnKinds)].collection))
		return err
	}},
	{"write", 6000, churnUpdate},
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
		m, err := s.sample(ctx, churnClients, min(request.n, s.sizes.Updates), request.do)
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
		m, err := s.sample(ctx, churnClients, 200, churnUpdate)
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
