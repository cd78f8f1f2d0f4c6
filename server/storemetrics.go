package server

import (
	"errors"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sqube/sqube/server/connections"
	"github.com/sqube/sqube/sqlstore"
)

// What happens in all stores of the process.
var (
	batches = metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "sqube_store_compaction_batch_duration_seconds",
		Help: "How long a batch of compaction took. On SQLite no one writes meanwhile.",
		// From half a millisecond to four seconds.
		Buckets:        metrics.ExponentialBuckets(0.0005, 2, 14),
		StabilityLevel: metrics.ALPHA,
	})
	writes = metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "sqube_store_write_duration_seconds",
		Help: "How long a write waited until it was committed or had conflicted, the wait for the group before it included.",
		// From half a millisecond to eight seconds.
		Buckets:        metrics.ExponentialBuckets(0.0005, 2, 15),
		StabilityLevel: metrics.ALPHA,
	})
	groups = metrics.NewHistogram(&metrics.HistogramOpts{
		Name:           "sqube_store_group_writes",
		Help:           "Writes that were committed in one transaction, 256 at the most.",
		Buckets:        metrics.ExponentialBuckets(1, 2, 9),
		StabilityLevel: metrics.ALPHA,
	})
)

// stores are those that this process has open.
var stores = &storeCollector{}

// registerMetrics publishes the metrics of this package, once in a process.
var registerMetrics = sync.OnceValue(func() error {
	var errs []error
	for _, metric := range []metrics.Registerable{objectCountMetric, connections.Closed, batches, writes, groups} {
		errs = append(errs, legacyregistry.Register(metric))
	}
	for _, reason := range connections.Reasons {
		connections.Closed.WithLabelValues(reason) // so that it is 0 before the first one
	}
	return errors.Join(append(errs, legacyregistry.CustomRegister(stores), legacyregistry.CustomRegister(certificates))...)
})

// storeGauges are the figures that are read when they are asked for.
var storeGauges = []struct {
	desc  *metrics.Desc
	kind  metrics.ValueType
	value func(sqlstore.Stats) float64
}{
	{storeDesc("revision", "The newest resourceVersion."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Revision) }},
	{storeDesc("compacted_revision", "The resourceVersion before which watches and lists are answered with 410."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Compacted) }},
	{storeDesc("live_rows", "Objects in the database, as counted after a compaction."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Live) }},
	{storeDesc("superseded_rows", "Replaced and deleted versions of objects that are kept, as counted after a compaction."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Superseded) }},
	{storeDesc("removed_rows_total", "Superseded versions that this process has removed."), metrics.CounterValue,
		func(s sqlstore.Stats) float64 { return float64(s.Removed) }},
	{storeDesc("compaction_lag_seconds", "For how long there have been versions that --retention or --retention-rows wants removed; 0 when there are none."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return s.Lag.Seconds() }},
	{storeDesc("archived_revision", "The resourceVersion up to which --archive holds everything; 0 without one, and where another server writes it."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Archived) }},
	{storeDesc("archive_failing_seconds", "For how long --archive has taken nothing, so that versions stay in the database; 0 while it does."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return s.ArchiveFailing.Seconds() }},
	{storeDesc("unreachable_seconds", "For how long the database has not answered; 0 while it does."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return s.Unreachable.Seconds() }},
	{storeDesc("failures_total", "Accesses to the database that failed, for no fault of those who asked for them."), metrics.CounterValue,
		func(s sqlstore.Stats) float64 { return float64(s.Failures) }},
	{storeDesc("tail_lag_seconds", "For how long other servers' writes have waited for this one to read them; 0 when there are none (Postgres)."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return s.TailLag.Seconds() }},
	{storeDesc("database_bytes", "Size of the database, without a write-ahead log."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Space.Database) }},
	{storeDesc("free_bytes", "The part of the database that is unused (SQLite)."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Space.Free) }},
	{storeDesc("wal_bytes", "Size of the write-ahead log (SQLite)."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Space.WAL) }},
	{storeDesc("cache_bytes", "Memory that the objects take which --cache-size keeps."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Cached) }},
	{storeDesc("held_back", "How many things keep the room of removed rows from being used again; the log names them."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(len(s.Space.HeldBack)) }},
	{storeDesc("watch_bytes", "Memory that holds what watches have not sent to their clients yet."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Watches) }},
	{storeDesc("slow_watches_total", "Watches that were ended because their clients read too slowly."), metrics.CounterValue,
		func(s sqlstore.Stats) float64 { return float64(s.SlowWatches) }},
}

func storeDesc(name, help string) *metrics.Desc {
	return metrics.NewDesc("sqube_store_"+name, help, nil, nil, metrics.ALPHA, "")
}

// storeCollector reads all figures at one moment. Those of several stores are added up.
type storeCollector struct {
	metrics.BaseStableCollector
	instances[*sqlstore.Store]
}

// DescribeWithStability implements metrics.StableCollector.
func (c *storeCollector) DescribeWithStability(descs chan<- *metrics.Desc) {
	for _, gauge := range storeGauges {
		descs <- gauge.desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *storeCollector) CollectWithStability(found chan<- metrics.Metric) {
	open := c.list()
	if len(open) == 0 {
		return
	}
	values := make([]float64, len(storeGauges))
	for _, store := range open {
		stats := store.Stats()
		for i, gauge := range storeGauges {
			values[i] += gauge.value(stats)
		}
	}
	for i, gauge := range storeGauges {
		found <- metrics.NewLazyConstMetric(gauge.desc, gauge.kind, values[i])
	}
}
