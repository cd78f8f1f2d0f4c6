package main

var (
	p99           = func(r result) figure { return r.P99 }
	starts        = func(r result) figure { return figure(r.Operations) }
	cores         = func(r result) figure { return 100 * r.Cores }
	databaseCores = func(r result) figure { return 100 * r.DatabaseCores }
	failed        = func(r result) figure { return r.Failed }
)

// scaleRows are the lines of the table of `bench scale`.
var scaleRows = func() []row {
	rows := []row{
		{"pods start, from creation to seen Running", "p50 ms", phaseScaleStarts, "%.0f", p50, false, ""},
		{"", "p99 ms", phaseScaleStarts, "%.0f", p99, false, ""},
		{"", "pods", phaseScaleStarts, "%.0f", starts, false, ""},
		{"API calls, the slowest verb, resource and scope, by the server's clock", "p99 ms", phaseScaleCalls, "%.0f", p99, false, ""},
		{"API calls of nodes, the slowest verb and resource, by the nodes' clocks", "p99 ms", phaseScaleNodes, "%.0f", p99, false, ""},
		{"", "calls", phaseScaleNodes, "%.0f", starts, false, ""},
		{"", "failed for good", phaseScaleNodes, "%.0f", failed, false, ""},
		{"acknowledged writes of nodes", "writes", phaseScaleWrites, "%.0f", starts, false, ""},
		{"", "missing at the end", phaseScaleWrites, "%.0f", failed, false, ""},
		{"a server is killed", "s until pods start under the other one", phaseScaleTakeover, "%.1f", seconds, false, ""},
		{"memory of one server", "peak RSS MiB", phaseScaleMemory, "%.0f", peak, false, ""},
	}
	for _, phase := range []string{phaseScaleJoin, phaseScaleGrow, phaseScaleFirst, phaseScaleSecond} {
		rows = append(rows,
			row{phase, "CPU, % of a core", phase, "%.0f", cores, false, ""},
			row{"", "Postgres CPU, % of a core", phase, "%.0f", databaseCores, false, ""},
			row{"", "RSS MiB of all servers", phase, "%.0f", rss, false, ""},
			row{"", "pods started per s", phase, "%.1f", perSecond, false, ""},
			row{"", "their p99 ms", phase, "%.0f", p99, false, ""})
	}
	for _, phase := range []string{phaseScaleMiddle, phaseScaleEnd} {
		rows = append(rows,
			row{phase, "MB", phase, "%.0f", sumOfSizes, false, ""},
			row{"", "sizes of its objects", phase, "%.2f", func(r result) figure { return r.Times }, false, ""})
	}
	return rows
}()
