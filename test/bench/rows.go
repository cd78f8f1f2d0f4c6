package main

// row is one line of a table: a figure of a phase, empty if not measured.
type row struct {
	unit  string // of the figure
	value func(result) figure
	ratio bool   // shown with its ratio to the reference
	work  string // "" if it is that of the line above
	phase string
	over  string // the phase whose figure it is divided by, unless ""
}

// of returns the row with another label than the phase's name.
func (r row) of(work string) row {
	r.work = work
	return r
}

// with returns the row with or without the ratio to the reference.
func (r row) with(ratio bool) row {
	r.ratio = ratio
	return r
}

// dividedBy returns the figure as a multiple of that of another phase.
func (r row) dividedBy(phase, unit string) row {
	r.over, r.unit, r.ratio = phase, unit, false
	return r
}

// The figures of phases, by which they are compared or not.
var (
	cpuMicros   = row{unit: "CPU µs each", value: func(r result) figure { return r.CPU }, ratio: true}
	cpuMillis   = row{unit: "CPU ms each", value: func(r result) figure { return r.CPU / 1000 }, ratio: true}
	firstMillis = row{unit: "CPU ms each", value: func(r result) figure { return r.FirstCPU / 1000 }, ratio: true}
	startMillis = row{unit: "CPU ms", value: func(r result) figure { return r.CPU / 1000 }}
	delivery    = row{unit: "CPU µs each", value: func(r result) figure { return r.Delivery }, ratio: true}
	databaseCPU = row{unit: "Postgres CPU µs each", value: func(r result) figure { return r.DatabaseCPU }}
	p50         = row{unit: "p50 ms", value: func(r result) figure { return r.P50 }}
	p50ToEvent  = row{unit: "p50 ms from the request to the event", value: p50.value}
	p99         = row{unit: "p99 ms", value: func(r result) figure { return r.P99 }}
	longest     = row{unit: "longest ms", value: func(r result) figure { return r.Longest }}
	perSecond   = row{unit: "per s", value: func(r result) figure { return r.PerSecond }}
	length      = row{unit: "bytes of one", value: func(r result) figure { return figure(r.Bytes) }}
	answerSize  = row{unit: "MB", value: func(r result) figure { return megabytes(r.Bytes) }}
	historySize = row{unit: "bytes of history each", value: length.value}
	storedSize  = row{unit: "MB", value: sumOfSizes, ratio: true}
	seconds     = row{unit: "s", value: func(r result) figure { return r.Seconds }}

	rss           = row{unit: "RSS MiB", value: func(r result) figure { return r.RSS }, ratio: true}
	anonymous     = row{unit: "anonymous MiB", value: func(r result) figure { return r.Anonymous }, ratio: true}
	peak          = row{unit: "peak RSS MiB", value: func(r result) figure { return r.Peak }, ratio: true}
	rssEach       = row{unit: "RSS KiB each", value: func(r result) figure { return r.RSSEach }, ratio: true}
	anonymousEach = row{unit: "anonymous KiB each", value: func(r result) figure { return r.AnonymousEach }, ratio: true}
	liveEach      = row{unit: "KiB each of heap and stacks", value: func(r result) figure { return r.LiveEach }, ratio: true}

	idleCPU         = row{unit: "CPU, % of a core", value: func(r result) figure { return r.IdleCPU }, ratio: true}
	idleDatabaseCPU = row{unit: "Postgres CPU, % of a core", value: func(r result) figure { return r.IdleDatabaseCPU }}
	written         = row{unit: "KB written each", value: func(r result) figure { return r.Written }, ratio: true}
	writtenMinute   = row{unit: "KB written a minute", value: func(r result) figure { return r.WrittenMinute }, ratio: true}
	writtenYear     = row{unit: "GB written a year", value: func(r result) figure { return r.WrittenYear }, ratio: true}
	failures        = row{unit: "without a whole answer", value: func(r result) figure { return r.Failed }}
)

// sumOfSizes adds the sizes of all binaries.
func sumOfSizes(r result) figure {
	var sum figure
	for _, n := range r.Sizes {
		sum += n
	}
	return sum
}
