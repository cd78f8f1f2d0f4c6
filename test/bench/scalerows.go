package main

// Figures of a whole cluster, which is not compared with other servers.
var (
	operations    = row{unit: "in all", value: func(r result) figure { return figure(r.Operations) }}
	failed        = row{unit: "failed for good, or missing at the end", value: func(r result) figure { return r.Failed }}
	takeover      = row{unit: "s until pods start under the other one", value: func(r result) figure { return r.Seconds }}
	databaseTimes = row{unit: "sizes of its objects", value: func(r result) figure { return r.Times }}
	serversRSS    = row{unit: "RSS MiB of all servers, on average", value: func(r result) figure { return r.RSS }}
	// nodeCPU is the CPU time per node of the servers and Postgres, in ms per s.
	nodeCPU    = row{value: func(r result) figure { return 1000 * (r.Cores + r.DatabaseCores) / figure(r.Nodes) }}
	nodeMemory = row{value: func(r result) figure { return r.AnonymousEach }}
	nodeRSS    = row{value: func(r result) figure { return r.RSS / figure(r.Nodes) }}
)

// windowRows are the lines of a phase that reports what everything takes.
var windowRows = []row{
	seconds,
	{unit: "CPU of all servers, % of a core", value: func(r result) figure { return 100 * r.Cores }},
	{unit: "Postgres CPU, % of a core", value: func(r result) figure { return 100 * r.DatabaseCores }},
	serversRSS,
	{unit: "pods started per s", value: func(r result) figure { return r.PerSecond }},
	{unit: "their p99 ms", value: func(r result) figure { return r.P99 }},
	{unit: "objects written per s", value: func(r result) figure { return r.Writes }},
	{unit: "KB written to the disk, or to Postgres' log, per s", value: func(r result) figure { return r.WrittenSecond }},
	{unit: "KB sent to clients per s", value: func(r result) figure { return r.Sent }},
	{unit: "CPU of the load generator, % of a core", value: func(r result) figure { return 100 * r.LoadCores }},
	{unit: "RSS MiB of the load generator", value: func(r result) figure { return r.LoadRSS }},
}
