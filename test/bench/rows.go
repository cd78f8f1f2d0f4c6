package main

// Figures shown by several rows.
var (
	cpuMicros   = func(r result) figure { return r.CPU }
	cpuMillis   = func(r result) figure { return r.CPU / 1000 }
	firstMillis = func(r result) figure { return r.FirstCPU / 1000 }
	delivery    = func(r result) figure { return r.Delivery }
	databaseCPU = func(r result) figure { return r.DatabaseCPU }
	p50         = func(r result) figure { return r.P50 }
	perSecond   = func(r result) figure { return r.PerSecond }
	length      = func(r result) figure { return figure(r.Bytes) }
	megabytesOf = func(r result) figure { return megabytes(r.Bytes) }
	seconds     = func(r result) figure { return r.Seconds }
	rss         = func(r result) figure { return r.RSS }
	anonymous   = func(r result) figure { return r.Anonymous }
	peak        = func(r result) figure { return r.Peak }
)

// sumOfSizes adds the sizes of all binaries.
func sumOfSizes(r result) figure {
	var sum figure
	for _, n := range r.Sizes {
		sum += n
	}
	return sum
}

// The units of CPU time, the figure to compare.
const (
	cpuMicrosEach = "CPU µs each"
	cpuMillisEach = "CPU ms each"
	postgresEach  = "Postgres CPU µs each"
)

// coreShare is the unit of the CPU of a server without requests. In a short run it may be 0.
const coreShare = "CPU, % of a core"

// failures is the unit of failed requests.
const failures = "without a whole answer"

// rows are the lines of the table of all phases.
var rows = []row{
	{"create ConfigMap 1 KB, 1 client", "p50 ms", phaseCreate1, "%.2f", p50, false, ""},
	{"", cpuMicrosEach, phaseCreate1, "%.0f", cpuMicros, true, ""},
	{"create ConfigMap, 16 clients", "per s", phaseCreate16, "%.0f", perSecond, false, ""},
	{"", cpuMicrosEach, phaseCreate16, "%.0f", cpuMicros, true, ""},
	{"", postgresEach, phaseCreate16, "%.0f", databaseCPU, false, ""},
	{"create ConfigMap, 64 clients", "per s", phaseCreate64, "%.0f", perSecond, false, ""},
	{"", cpuMicrosEach, phaseCreate64, "%.0f", cpuMicros, true, ""},
	{"", postgresEach, phaseCreate64, "%.0f", databaseCPU, false, ""},
	{"update ConfigMap (PUT), 64 clients", "per s", phaseUpdate, "%.0f", perSecond, false, ""},
	{"", cpuMicrosEach, phaseUpdate, "%.0f", cpuMicros, true, ""},
	{"", postgresEach, phaseUpdate, "%.0f", databaseCPU, false, ""},
	{"get, 16 clients", "per s", phaseGet, "%.0f", perSecond, false, ""},
	{"", cpuMicrosEach, phaseGet, "%.0f", cpuMicros, true, ""},
	{"renew a Lease (PUT), 64 clients", cpuMicrosEach, phaseLease, "%.0f", cpuMicros, true, ""},
	{"create Event, 16 clients", cpuMicrosEach, phaseEvent, "%.0f", cpuMicros, true, ""},
	{"strategic merge patch of a Deployment", cpuMicrosEach, phasePatch, "%.0f", cpuMicros, true, ""},
	{"server-side apply of a Deployment", cpuMicrosEach, phaseApply, "%.0f", cpuMicros, true, ""},
	{"create custom resource 1.1 KB", cpuMicrosEach, phaseCustom, "%.0f", cpuMicros, true, ""},
	{"list all custom resources, JSON", cpuMillisEach, phaseListCustom, "%.1f", cpuMillis, true, ""},
	{"", "MB", phaseListCustom, "%.1f", megabytesOf, false, ""},
	{"create Pod 4.8 KB, 32 clients", "per s", phasePods, "%.0f", perSecond, false, ""},
	{"", cpuMicrosEach, phasePods, "%.0f", cpuMicros, true, ""},
	{"", "bytes of one", phasePods, "%.0f", length, false, ""},
	{"list all pods, JSON", "p50 ms", phaseListJSON, "%.0f", p50, false, ""},
	{"", cpuMillisEach, phaseListJSON, "%.0f", cpuMillis, true, ""},
	{"", "MB", phaseListJSON, "%.1f", megabytesOf, false, ""},
	{"list all pods, JSON, gzip", cpuMillisEach, phaseListGzip, "%.0f", cpuMillis, true, ""},
	{"", "MB", phaseListGzip, "%.1f", megabytesOf, false, ""},
	{"list all pods, protobuf, first after they were created", cpuMillisEach, phaseListProto, "%.0f", firstMillis, true, ""},
	{"list all pods, protobuf, first after a restart", cpuMillisEach, phaseRestarted, "%.0f", cpuMillis, true, ""},
	{"list all pods, protobuf, the first and more", "p50 ms", phaseListProto, "%.0f", p50, false, ""},
	{"", cpuMillisEach, phaseListProto, "%.0f", cpuMillis, true, ""},
	{"list all pods as Table", "p50 ms", phaseListTable, "%.0f", p50, false, ""},
	{"", cpuMillisEach, phaseListTable, "%.0f", cpuMillis, true, ""},
	{"list all pods in chunks of 500", "p50 ms", phaseListChunks, "%.0f", p50, false, ""},
	{"", cpuMillisEach, phaseListChunks, "%.0f", cpuMillis, true, ""},
	{"label selector, 1 pod of 50", "p50 ms", phaseSelector, "%.1f", p50, false, ""},
	{"", cpuMillisEach, phaseSelector, "%.2f", cpuMillis, true, ""},
	{"field selector spec.nodeName, 1 pod of 200", "p50 ms", phaseField, "%.1f", p50, false, ""},
	{"", cpuMillisEach, phaseField, "%.2f", cpuMillis, true, ""},
	{"4 clients list all pods at once, JSON", cpuMillisEach, phaseListFour, "%.0f", cpuMillis, true, ""},
	{"streaming list of all pods, JSON", "p50 ms", phaseStreamJSON, "%.0f", p50, false, ""},
	{"", cpuMillisEach, phaseStreamJSON, "%.0f", cpuMillis, true, ""},
	{"streaming list of all pods, protobuf", "p50 ms", phaseStreamProto, "%.0f", p50, false, ""},
	{"", cpuMillisEach, phaseStreamProto, "%.0f", cpuMillis, true, ""},
	{"update a pod's status, each node's pods watched", "p50 ms to the event", phaseStatus, "%.1f", p50, false, ""},
	{"", cpuMicrosEach, phaseStatus, "%.0f", cpuMicros, true, ""},
	{"event delivered to one of many watchers", "p50 ms from the request", phaseWatch, "%.1f", p50, false, ""},
	{"", cpuMicrosEach, phaseWatch, "%.1f", delivery, true, ""},
	{"the same, with its share of the writes", cpuMicrosEach, phaseWatch, "%.1f", cpuMicros, true, ""},
	{"memory just started", "RSS MiB", phaseFresh, "%.0f", rss, true, ""},
	{"", "anonymous MiB", phaseFresh, "%.0f", anonymous, true, ""},
	{"memory, pods created", "RSS MiB", phaseLoaded, "%.0f", rss, true, ""},
	{"", "anonymous MiB", phaseLoaded, "%.0f", anonymous, true, ""},
	{"memory after lists", "RSS MiB", phaseAfterLists, "%.0f", rss, true, ""},
	{"", "anonymous MiB", phaseAfterLists, "%.0f", anonymous, true, ""},
	{"without requests, directly after all that", coreShare, phaseSettling, "%.2f", idleCPU, true, ""},
	{"", "Postgres CPU, % of a core", phaseSettling, "%.2f", idleDatabaseCPU, false, ""},
	{"idle", coreShare, phaseIdle, "%.2f", idleCPU, true, ""},
	{"", "Postgres CPU, % of a core", phaseIdle, "%.2f", idleDatabaseCPU, false, ""},
	{"start to /readyz, empty", "s", phaseStart, "%.2f", seconds, true, ""},
	{"", "CPU ms", phaseStart, "%.0f", cpuMillis, false, ""},
	{"start to /readyz, all of this stored", "s", phaseRestart, "%.2f", seconds, true, ""},
	{"", "CPU ms", phaseRestart, "%.0f", cpuMillis, false, ""},
	{"binaries", "MB", phaseStart, "%.1f", sumOfSizes, true, ""},
	{"database", "MB", phaseDatabase, "%.1f", sumOfSizes, true, ""},
}

func idleCPU(r result) figure         { return r.IdleCPU }
func idleDatabaseCPU(r result) figure { return r.IdleDatabaseCPU }

// writtenMinute is a unit.
const writtenMinute = "KB written a minute"

// sizeRows are the lines of the table of `bench size`.
var sizeRows = func() (rows []row) {
	for _, work := range sizeWork {
		rows = append(rows,
			row{work + few, cpuMicrosEach, work + few, "%.0f", cpuMicros, true, ""},
			row{work + many, cpuMicrosEach, work + many, "%.0f", cpuMicros, true, ""},
			row{"", "of that with few", work + many, "%.2f", cpuMicros, false, work + few},
			row{"", "p50, of that with few", work + many, "%.2f", p50, false, work + few})
	}
	return append(rows, row{"memory", "RSS MiB", phaseAfterLists, "%.0f", rss, true, ""})
}()

// crowdRows are the lines of the table of `bench crowd`.
var crowdRows = func() []row {
	rows := []row{{"memory, pods created", "RSS MiB", phaseLoaded, "%.0f", rss, true, ""}}
	for _, work := range []string{phaseCrowdJSON, phaseCrowdGzip, phaseCrowdProto, phaseCrowdTable, phaseCrowdStream, phaseCrowdStreamProto} {
		rows = append(rows,
			row{work, "peak RSS MiB", work, "%.0f", peak, true, ""},
			row{"", cpuMillisEach, work, "%.0f", cpuMillis, true, ""},
			row{"", "p50 ms", work, "%.0f", p50, false, ""},
			row{"", failures, work, "%.0f", func(r result) figure { return r.Failed }, false, ""})
	}
	return append(rows, row{"memory afterwards", "RSS MiB", phaseAfterLists, "%.0f", rss, true, ""})
}()
