package main

import (
	"errors"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sqube/sqube/sqlstore"
)

// storeMetrics tell at /metrics how large the log is and how compaction keeps up.
type storeMetrics struct {
	batches *metrics.Histogram
}

// newStoreMetrics returns what is to be told of batches before the store is
// there.
func newStoreMetrics() *storeMetrics {
	return &storeMetrics{metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "sqube_store_compaction_batch_duration_seconds",
		Help: "How long a batch of compaction took. On SQLite nobody writes meanwhile.",
		// From half a millisecond to four seconds.
		Buckets:        metrics.ExponentialBuckets(0.0005, 2, 14),
		StabilityLevel: metrics.ALPHA,
	})}
}

// observe adds a batch.
func (m *storeMetrics) observe(took time.Duration) { m.batches.Observe(took.Seconds()) }

// register publishes the metrics, once in a process.
func (m *storeMetrics) register(stats func() sqlstore.Stats) error {
	return errors.Join(legacyregistry.Register(m.batches), legacyregistry.CustomRegister(&storeCollector{stats: stats}))
}

// storeGauges are the figures that are read when they are asked for.
var storeGauges = []struct {
	desc  *metrics.Desc
	kind  metrics.ValueType
	value func(sqlstore.Stats) float64
}{
	{storeDesc("revision", "The newest resourceVersion."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Current) }},
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

// storeCollector reads all figures at one moment.
type storeCollector struct {
	metrics.BaseStableCollector
	stats func() sqlstore.Stats
}

// DescribeWithStability implements metrics.StableCollector.
func (c *storeCollector) DescribeWithStability(descs chan<- *metrics.Desc) {
	for _, gauge := range storeGauges {
		descs <- gauge.desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *storeCollector) CollectWithStability(found chan<- metrics.Metric) {
	stats := c.stats()
	for _, gauge := range storeGauges {
		found <- metrics.NewLazyConstMetric(gauge.desc, gauge.kind, gauge.value(stats))
	}
}
