package server

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	etcd3metrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sqube/sqube/server/connections"
	"github.com/sqube/sqube/sqlstore"
)

// Metrics of all stores in the process.
var (
	batches = metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "sqube_store_compaction_batch_duration_seconds",
		Help: "How long a batch of compaction took. On SQLite it blocks writes.",
		// From half a millisecond to four seconds.
		Buckets:        metrics.ExponentialBuckets(0.0005, 2, 14),
		StabilityLevel: metrics.ALPHA,
	})
	writes = metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "sqube_store_write_duration_seconds",
		Help: "How long a write took until it was committed or conflicted, including the wait for the previous group.",
		// From half a millisecond to eight seconds.
		Buckets:        metrics.ExponentialBuckets(0.0005, 2, 15),
		StabilityLevel: metrics.ALPHA,
	})
	groups = metrics.NewHistogram(&metrics.HistogramOpts{
		Name:           "sqube_store_group_writes",
		Help:           "Writes that were committed in one transaction, at most 256.",
		Buckets:        metrics.ExponentialBuckets(1, 2, 9),
		StabilityLevel: metrics.ALPHA,
	})
)

// stores are the open stores of this process.
var stores = newCollector(storeDescs(), collectStores)

// registerMetrics registers the metrics of this package once per process.
var registerMetrics = sync.OnceValue(func() error {
	var errs []error
	for _, metric := range []metrics.Registerable{connections.Closed, batches, writes, groups} {
		errs = append(errs, legacyregistry.Register(metric))
	}
	for _, reason := range connections.Reasons {
		connections.Closed.WithLabelValues(reason) // so that the metric starts at 0
	}
	etcd3metrics.SetStorageMonitorGetter(func() (all []etcd3metrics.Monitor, err error) {
		for _, store := range stores.list() {
			all = append(all, monitor{store})
		}
		return all, nil
	})
	return errors.Join(append(errs, legacyregistry.CustomRegister(stores), legacyregistry.CustomRegister(certificates), legacyregistry.CustomRegister(schemas), legacyregistry.CustomRegister(unconfirmed))...)
})

// observeRequest records an access to the objects of a resource in the database. To upstream's metrics, it is a request to etcd.
func observeRequest(operation string, resource sqlstore.Resource, began time.Time, err error) {
	etcd3metrics.RecordEtcdRequest(operation, groupResource(resource), err, began)
	if err == nil && slices.Contains([]string{"create", "update", "delete"}, operation) {
		writes.Observe(time.Since(began).Seconds())
	}
}

func groupResource(r sqlstore.Resource) schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

// monitor tells upstream's metrics the size of a database.
type monitor struct{ *sqlstore.Store }

func (m monitor) Monitor(context.Context) (etcd3metrics.StorageMetrics, error) {
	return etcd3metrics.StorageMetrics{Size: m.Stats().Space.Database}, nil
}

// Close implements etcd3metrics.Monitor. The store is not the monitor's.
func (m monitor) Close() error { return nil }

// storeGauges are the metrics that are read on each scrape.
var storeGauges = []struct {
	desc  *metrics.Desc
	kind  metrics.ValueType
	value func(sqlstore.Stats) float64
}{
	{storeDesc("revision", "The newest resourceVersion."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Revision) }},
	{storeDesc("compacted_revision", "The resourceVersion before which watches get 410, and lists too unless history has it."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Compacted) }},
	{storeDesc("live_rows", "Objects in the database, as counted after a compaction."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Live) }},
	{storeDesc("superseded_rows", "Replaced and deleted versions of objects that are kept, as counted after a compaction."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Replaced) }},
	{storeDesc("removed_rows_total", "Replaced and deleted versions that this process has removed."), metrics.CounterValue,
		func(s sqlstore.Stats) float64 { return float64(s.Removed) }},
	{storeDesc("compaction_lag_seconds", "For how long there have been versions that --retention or --retention-rows should have removed; 0 if there are none."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return s.Lag.Seconds() }},
	{storeDesc("history_revision", "The resourceVersion from which on lists, gets and changes can be read."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.History.From) }},
	{storeDesc("history_bytes", "What the versions take that were packed when --retention was over, without indexes."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.History.Bytes) }},
	{storeDesc("history_values_revision", "The resourceVersion from which on all values are kept, too. Older ones may have been given up for room (--history-bytes)."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.History.ValuesFrom) }},
	{storeDesc("history_bare_blocks", "Parts of history that have given up their values for room; 0 if it is as long as --history asks for."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.History.Bare) }},
	{storeDesc("archived_revision", "The resourceVersion up to which --archive is complete; 0 without one, and if another server writes it."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Archived) }},
	{storeDesc("archive_failing_seconds", "For how long writing --archive has failed, so that versions stay in the database; 0 while it succeeds."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return s.ArchiveFailing.Seconds() }},
	{storeDesc("unreachable_seconds", "For how long the database has not answered; 0 while it does."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return s.Unreachable.Seconds() }},
	{storeDesc("failures_total", "Database operations that failed, except those that the client caused."), metrics.CounterValue,
		func(s sqlstore.Stats) float64 { return float64(s.Failures) }},
	{storeDesc("tail_lag_seconds", "For how long other servers' writes have waited for this one to read them; 0 if there are none (Postgres)."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return s.TailLag.Seconds() }},
	{storeDesc("unnotified_seconds", "For how long this server could not notify others of its writes, which they see up to a second late; 0 if it can (Postgres)."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return s.Unnotified.Seconds() }},
	{storeDesc("clock_behind_seconds", "How far this machine's clock is behind the time of the log, which the server with the fastest clock sets; 0 if it is not."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return s.ClockBehind.Seconds() }},
	{storeDesc("database_bytes", "Size of the database, without a write-ahead log."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Space.Database) }},
	{storeDesc("free_bytes", "Unused bytes in the database (SQLite)."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Space.Free) }},
	{storeDesc("wal_bytes", "Size of the write-ahead log (SQLite)."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Space.WAL) }},
	{storeDesc("cache_bytes", "Memory that the objects kept by --cache-size use."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Cached) }},
	{storeDesc("held_back", "How many things keep the space of removed rows from being reused; the log names them."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(len(s.Space.HeldBack)) }},
	{storeDesc("unsafe_settings", "How many settings of the database put acknowledged writes at risk if its machine fails; the log and /readyz?verbose name them (Postgres)."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(len(s.UnsafeSettings)) }},
	{storeDesc("watch_bytes", "Memory of events that watches have not sent to their clients yet."), metrics.GaugeValue,
		func(s sqlstore.Stats) float64 { return float64(s.Watches) }},
	{storeDesc("slow_watches_total", "Watches that were ended because their clients read too slowly."), metrics.CounterValue,
		func(s sqlstore.Stats) float64 { return float64(s.SlowWatches) }},
}

func storeDescs() (descs []*metrics.Desc) {
	for _, gauge := range storeGauges {
		descs = append(descs, gauge.desc)
	}
	return descs
}

func storeDesc(name, help string) *metrics.Desc {
	return metrics.NewDesc("sqube_store_"+name, help, nil, nil, metrics.ALPHA, "")
}

// collectStores reads all metrics at one moment and adds up those of several stores.
func collectStores(open []*sqlstore.Store, found chan<- metrics.Metric) {
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

// certificates collects the expiry times of the certificates of all servers in this process.
var certificates = newCollector([]*metrics.Desc{certificateExpiration}, collectCertificates)

var certificateExpiration = metrics.NewDesc("sqube_certificate_expiration_timestamp_seconds",
	"When a certificate that the server uses expires, in Unix time; the first to expire if a file holds several; 0 if the file can't be read.",
	[]string{"file"}, nil, metrics.ALPHA, "")

// collectCertificates reads the files on each scrape, since they change while a server runs.
func collectCertificates(servers []*Server, found chan<- metrics.Metric) {
	seen := map[string]bool{} // servers may share files
	for _, s := range servers {
		for _, file := range s.certificateFiles() {
			if seen[file] {
				continue
			}
			seen[file] = true
			end := 0.0
			if at, err := earliestExpiry(file); err == nil {
				end = float64(at.Unix())
			}
			found <- metrics.NewLazyConstMetric(certificateExpiration, metrics.GaugeValue, end, file)
		}
	}
}

// certificateFiles are the files of the certificates that the server signs with or presents.
func (s *Server) certificateFiles() []string {
	files := []string{s.pki.CA.CertFile, s.pki.FrontProxyCA.CertFile, s.pki.Serving.CertFile,
		cmp.Or(s.options.Kubelet.TLSClientConfig.CertFile, s.pki.KubeletClient.CertFile), s.options.Aggregation.ClientCertFile}
	if given := s.options.Serving.ServerCert.CertKey.CertFile; given != "" {
		files = append(files, given)
	}
	for _, named := range s.options.sni() {
		files = append(files, named.CertFile)
	}
	return files
}

// earliestExpiry returns when the first certificate in a file expires.
func earliestExpiry(file string) (time.Time, error) {
	certs, err := certutil.CertsFromFile(file)
	if err != nil {
		return time.Time{}, err
	}
	first := slices.MinFunc(certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return first.NotAfter, nil
}

// collector collects metrics of instances, since a process may run several servers.
type collector[T comparable] struct {
	metrics.BaseStableCollector
	descs   []*metrics.Desc
	collect func([]T, chan<- metrics.Metric)

	mu  sync.Mutex
	all []T
}

func newCollector[T comparable](descs []*metrics.Desc, collect func([]T, chan<- metrics.Metric)) *collector[T] {
	return &collector[T]{descs: descs, collect: collect}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector[T]) DescribeWithStability(descs chan<- *metrics.Desc) {
	for _, desc := range c.descs {
		descs <- desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector[T]) CollectWithStability(found chan<- metrics.Metric) { c.collect(c.list(), found) }

// add includes an instance in the metrics until remove is called.
func (c *collector[T]) add(instance T) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, instance)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = slices.DeleteFunc(c.all, func(other T) bool { return other == instance })
	}
}

func (c *collector[T]) list() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// schemas counts the custom resources of all servers in this process that are in use.
var schemas = newCollector([]*metrics.Desc{schemasInMemory}, func(servers []*Server, found chan<- metrics.Metric) {
	n := 0
	for _, s := range servers {
		n += s.crd.InUse()
	}
	found <- metrics.NewLazyConstMetric(schemasInMemory, metrics.GaugeValue, float64(n))
})

var schemasInMemory = metrics.NewDesc("sqube_custom_resources_in_use",
	"CustomResourceDefinitions whose schemas are in memory, since their resources were used in the last minutes.", nil, nil, metrics.ALPHA, "")
