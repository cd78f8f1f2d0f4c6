package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The load of k0smotron's benchmark of storage backends (docs.k0smotron.io/head/benchmarks): requests at once over one client's few
// connections, as many as there are streams for, each with 30 seconds.
const (
	lifeTimeout  = 30 * time.Second
	lifeWatchers = 25
	lifeWrites   = 4 // a creation, two updates and a deletion
)

func k0smotronPhases(n sizes) []phase {
	churn := slices.Clone(crowdRows)
	churn[0].unit, churn[1].unit = "lives per s", "p99 ms of a life"
	churn[2].unit = "lives that succeed, %"
	churn[5].unit = "CPU µs per life"
	var phases []phase
	for _, clients := range crowds {
		phases = append(phases, phase{fmt.Sprintf("k0smotron's watch-churn, %d at once", clients), false, lives(n.share(clients), max(1, n.Writes/lifeWrites)), churn})
	}
	return phases
}

// lives creates, updates twice and deletes so many ConfigMaps, of which some at once, while 25 watches select them by label. An operation is
// the life of an object, which fails with its first failed request.
func lives(atOnce, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		shared, err := s.dialer.dial(ctx)
		if err != nil {
			return result{}, err
		}
		defer clients{shared}.close()
		sharing := func(n int) clients {
			all := make(clients, n)
			for i := range all {
				all[i] = &client{http: shared.http, base: shared.base, token: shared.token}
			}
			return all
		}
		objects := configMaps(fmt.Sprintf("life-%d", atOnce))
		labels := fmt.Sprintf(`,"labels":{"run":"%s"}`, objects.prefix)
		w := newRecord(n * lifeWrites)
		var failed atomic.Int64
		r, err := witnessed(s, ctx, w, 0, func() (clients, error) { return sharing(lifeWatchers), nil }, objects.collection+"?labelSelector=run%3D"+objects.prefix+"&", func(m *sample) []time.Duration {
			var next atomic.Int64
			var mu sync.Mutex
			_ = sharing(atOnce).each(func(_ int, c *client) error {
				for ctx.Err() == nil {
					i := int(next.Add(1)) - 1
					if i >= n {
						return nil
					}
					began := time.Now()
					if err := live(ctx, c, w, objects, labels, i); err != nil {
						failed.Add(1)
						continue
					}
					took := time.Since(began)
					mu.Lock()
					m.latencies = append(m.latencies, took)
					mu.Unlock()
				}
				return nil
			})
			return nil
		})
		succeeded := n - int(failed.Load())
		r.Clients, r.Operations = atOnce, n
		r.PerSecond = figure(succeeded) / r.Seconds
		r.Succeeded = 100 * figure(succeeded) / figure(n)
		r.CPU, r.DatabaseCPU = r.CPU*figure(w.count())/figure(n), r.DatabaseCPU*figure(w.count())/figure(n)
		return r, err
	}
}

// live makes the writes of an object's life, up to the first that fails.
func live(ctx context.Context, c *client, w *record, objects kind, labels string, i int) error {
	body := func(step int) []byte { return numberedConfigMap(objects.name(i), labels, i*lifeWrites+step, 0) }
	for step, r := range []request{
		post(objects.collection, body(0)), put(objects.path(i), body(1)), put(objects.path(i), body(2)),
		{method: http.MethodDelete, path: objects.path(i)},
	} {
		ctx, cancel := context.WithTimeout(ctx, lifeTimeout)
		_, err := w.make(ctx, c, i*lifeWrites+step, r)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
