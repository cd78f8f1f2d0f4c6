package main

import "slices"

var (
	p99           = func(r result) figure { return r.P99 }
	count         = func(r result) figure { return figure(r.Operations) }
	cores         = func(r result) figure { return 100 * r.Cores }
	databaseCores = func(r result) figure { return 100 * r.DatabaseCores }
	failed        = func(r result) figure { return r.Failed }
	// nodeCPU is the CPU time per node of the servers and Postgres, in ms per s.
	nodeCPU = func(r result) figure { return 1000 * (r.Cores + r.DatabaseCores) / figure(r.Nodes) }
)

// scaleRows are the lines of the table of `bench scale`.
var scaleRows = slices.Concat([]row{
	{"pods start, from creation to seen Running, p99 of at most 5000 ms", "p50 ms", phaseScaleStarts, "%.0f", p50, false, ""},
	{"", "p99 ms", phaseScaleStarts, "%.0f", p99, false, ""},
	{"", "pods", phaseScaleStarts, "%.0f", count, false, ""},
	{"API calls of one object by the server's clock, of at most 1000 ms", "p99 ms of the slowest kind", phaseScaleObject, "%.0f", p99, false, ""},
	{"", "calls", phaseScaleObject, "%.0f", count, false, ""},
	{"lists of a namespace, of at most 5000 ms", "p99 ms of the slowest kind", phaseScaleSpace, "%.0f", p99, false, ""},
	{"lists of the cluster, of at most 30000 ms", "p99 ms of the slowest kind", phaseScaleAll, "%.0f", p99, false, ""},
	{"API calls of nodes by their clocks, of at most 1000 ms", "p99 ms of the slowest kind", phaseScaleNodes, "%.0f", p99, false, ""},
	{"", "calls", phaseScaleNodes, "%.0f", count, false, ""},
	{"", "failed for good", phaseScaleNodes, "%.0f", failed, false, ""},
	{"acknowledged writes of nodes", "writes", phaseScaleWrites, "%.0f", count, false, ""},
	{"", "missing at the end", phaseScaleWrites, "%.0f", failed, false, ""},
	{phaseScaleTakeover, "s until pods start under the other one", phaseScaleTakeover, "%.1f", seconds, false, ""},
	{"", "p99 ms of pods that start meanwhile", phaseScaleTakeover, "%.0f", p99, false, ""},
	{"per node, over that with a tenth of the nodes, of at most 1.2", "CPU", phaseScaleSteady, "%.2f", nodeCPU, false, phaseScaleSteady + scaleTenth},
	{"", "memory beyond that without nodes", phaseScaleSteady, "%.2f", func(r result) figure { return r.AnonymousEach }, false, phaseScaleSteady + scaleTenth},
	{"", "all memory", phaseScaleSteady, "%.2f", func(r result) figure { return r.RSS / figure(r.Nodes) }, false, phaseScaleSteady + scaleTenth},
	{"", "CPU while no pods start", phaseScaleQuiet, "%.2f", nodeCPU, false, phaseScaleQuiet + scaleTenth},
	{phaseScaleEmpty, "RSS MiB of all servers", phaseScaleEmpty, "%.0f", rss, false, ""},
},
	windowRows(phaseScaleGrow+scaleTenth), windowRows(phaseScaleQuiet+scaleTenth), windowRows(phaseScaleSteady+scaleTenth),
	windowRows(phaseScaleGrow), windowRows(phaseScaleQuiet), windowRows(phaseScaleSteady), windowRows(phaseScaleAfter),
	[]row{
		{phaseScaleDatabase, "MB", phaseScaleDatabase, "%.0f", sumOfSizes, false, ""},
		{"", "sizes of its objects", phaseScaleDatabase, "%.2f", func(r result) figure { return r.Times }, false, ""},
	})

// windowRows are the lines of a phase that reports what everything takes.
func windowRows(phase string) []row {
	return []row{
		{phase, "s", phase, "%.0f", seconds, false, ""},
		{"", "CPU of all servers, % of a core", phase, "%.1f", cores, false, ""},
		{"", "Postgres CPU, % of a core", phase, "%.1f", databaseCores, false, ""},
		{"", "RSS MiB of all servers, on average", phase, "%.0f", rss, false, ""},
		{"", "pods started per s", phase, "%.1f", perSecond, false, ""},
		{"", "their p99 ms", phase, "%.0f", p99, false, ""},
		{"", "objects written per s", phase, "%.1f", func(r result) figure { return r.Writes }, false, ""},
		{"", "KB written to the disk, or to Postgres' log, per s", phase, "%.0f", func(r result) figure { return r.WrittenSecond }, false, ""},
		{"", "KB sent to clients per s", phase, "%.0f", func(r result) figure { return r.Sent }, false, ""},
		{"", "CPU of the load generator, % of a core", phase, "%.1f", func(r result) figure { return 100 * r.LoadCores }, false, ""},
		{"", "RSS MiB of the load generator", phase, "%.0f", func(r result) figure { return r.LoadRSS }, false, ""},
	}
}
