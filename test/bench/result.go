package main

import (
	"encoding/json"
	"io"
	"math"
	"slices"
	"strconv"
	"time"
)

// result is what one phase measured on one server. A figure that a phase does not measure is 0 and not printed.
type result struct {
	Command    string `json:"command,omitempty"` // of the benchmark; none measures all phases
	Server     string `json:"server"`
	Round      int    `json:"round"` // from 1
	Phase      string `json:"phase"`
	Clients    int    `json:"clients,omitempty"`
	Operations int    `json:"operations,omitempty"`
	Seconds    figure `json:"seconds,omitempty"`
	PerSecond  figure `json:"per_second,omitempty"`
	P50        figure `json:"p50_ms,omitempty"`
	P99        figure `json:"p99_ms,omitempty"`
	// CPU is the servers' user and system time per operation, a datastore shim's included, in microseconds.
	CPU figure `json:"cpu_us_per_operation,omitempty"`
	// FirstCPU is that of the first operation, where it is measured apart.
	FirstCPU figure `json:"cpu_us_of_first_operation,omitempty"`
	// DatabaseCPU is Postgres' time per operation.
	DatabaseCPU figure `json:"database_cpu_us_per_operation,omitempty"`
	// Bytes is the length of one answer.
	Bytes int64 `json:"bytes,omitempty"`

	RSS       figure `json:"rss_mib,omitempty"`
	Anonymous figure `json:"anonymous_mib,omitempty"`
	// Peak is the most that was resident during the phase.
	Peak figure `json:"peak_rss_mib,omitempty"`
	// Failed is how many operations got no whole answer, where that does not end the run.
	Failed figure `json:"failed,omitempty"`
	// Detail names what the figures are of, where they are those of the worst of several.
	Detail string `json:"detail,omitempty"`
	// Cores and DatabaseCores are CPU time per second that passed.
	Cores         figure `json:"cores,omitempty"`
	DatabaseCores figure `json:"database_cores,omitempty"`
	// Times is how many times its objects a database is large.
	Times figure `json:"times_its_objects,omitempty"`
	// IdleCPU and IdleDatabaseCPU are in percent of one core.
	IdleCPU         figure `json:"idle_cpu_percent,omitempty"`
	IdleDatabaseCPU figure `json:"idle_database_cpu_percent,omitempty"`
	// Written is what goes to the disk per operation, in KB, and WrittenYear what it is in a year that is like the phase, in GB.
	Written     figure `json:"written_kb_per_operation,omitempty"`
	WrittenYear figure `json:"written_gb_per_year,omitempty"`
	// Sizes are those of the binaries, in the order of the processes, or of the database, in MB.
	Sizes []figure `json:"megabytes,omitempty"`
}

// figure is a measurement, printed with three decimals at most.
type figure float64

// MarshalJSON rounds: the digits beyond say nothing.
func (f figure) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, math.Round(float64(f)*1000)/1000, 'f', -1, 64), nil
}

// write prints the result as one JSON line.
func (r result) write(out io.Writer) error {
	return json.NewEncoder(out).Encode(r)
}

// sample is the raw measurement of a load.
type sample struct {
	latencies   []time.Duration // one per operation
	wall        time.Duration
	cpu         time.Duration
	databaseCPU time.Duration
}

// add adds what another sample measured after this one.
func (s *sample) add(more sample) {
	s.latencies = append(s.latencies, more.latencies...)
	s.wall += more.wall
	s.cpu += more.cpu
	s.databaseCPU += more.databaseCPU
}

// result condenses the sample. CPU is per operation, of which an operation's latency need not be the whole.
func (s sample) result(clients, operations int) result {
	slices.Sort(s.latencies)
	return result{
		Clients:     clients,
		Operations:  operations,
		Seconds:     figure(s.wall.Seconds()),
		PerSecond:   figure(float64(operations) / s.wall.Seconds()),
		P50:         milliseconds(quantile(s.latencies, 50)),
		P99:         milliseconds(quantile(s.latencies, 99)),
		CPU:         microseconds(s.cpu) / figure(operations),
		DatabaseCPU: microseconds(s.databaseCPU) / figure(operations),
	}
}

// quantile returns the percentile of sorted durations, 0 of none.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*percent/100]
}

func milliseconds(d time.Duration) figure { return figure(d) / figure(time.Millisecond) }
func microseconds(d time.Duration) figure { return figure(d) / figure(time.Microsecond) }
func mebibytes(n int64) figure            { return figure(n) / (1 << 20) }
func megabytes(n int64) figure            { return figure(n) / 1e6 }
