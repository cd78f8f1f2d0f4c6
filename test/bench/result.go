package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"
)

// result is what one phase measured on one server. Figures that a phase does not measure are 0 and not printed.
type result struct {
	Command    string `json:"command,omitempty"` // of the benchmark; empty for all phases
	Server     string `json:"server"`
	Round      int    `json:"round"` // from 1
	Phase      string `json:"phase"`
	Clients    int    `json:"clients,omitempty"`
	Operations int    `json:"operations,omitempty"`
	Seconds    figure `json:"seconds,omitempty"`
	PerSecond  figure `json:"per_second,omitempty"`
	P50        figure `json:"p50_ms,omitempty"`
	P99        figure `json:"p99_ms,omitempty"`
	Longest    figure `json:"longest_ms,omitempty"`
	// CPU is the servers' user and system time per operation, including a datastore shim's and Postgres', in microseconds.
	CPU figure `json:"cpu_us_per_operation,omitempty"`
	// Delivery is CPU without what the same changes cost while nobody watches.
	Delivery figure `json:"cpu_us_per_delivery,omitempty"`
	// FirstCPU is that of the first operation, if measured separately.
	FirstCPU figure `json:"cpu_us_of_first_operation,omitempty"`
	// DatabaseCPU is Postgres' part of CPU.
	DatabaseCPU figure `json:"database_cpu_us_per_operation,omitempty"`
	// Bytes is the length of one response.
	Bytes int64 `json:"bytes,omitempty"`

	// RSS and Anonymous are the servers' memory with Postgres', DatabaseRSS is Postgres' part of RSS.
	RSS         figure `json:"rss_mib,omitempty"`
	DatabaseRSS figure `json:"database_rss_mib,omitempty"`
	Anonymous   figure `json:"anonymous_mib,omitempty"`
	// PeakRSS is the largest RSS during the phase.
	PeakRSS figure `json:"peak_rss_mib,omitempty"`
	// RSSEach and AnonymousEach are memory for each definition, node or watch, in KiB.
	RSSEach       figure `json:"rss_kib_each,omitempty"`
	AnonymousEach figure `json:"anonymous_kib_each,omitempty"`
	// LiveEach is what an idle watch takes of a collected heap and of the stacks, in KiB.
	LiveEach figure `json:"live_kib_each,omitempty"`
	// Failed is how many operations failed for good.
	Failed figure `json:"failed,omitempty"`
	// Detail names what the figures describe, if they are those of the worst of several.
	Detail string `json:"detail,omitempty"`
	// Cores is CPU time per second of wall time, DatabaseCores Postgres' part of it.
	Cores         figure `json:"cores,omitempty"`
	DatabaseCores figure `json:"database_cores,omitempty"`
	// Nodes is how many nodes there are.
	Nodes int `json:"nodes,omitempty"`
	// Limit is what P99 must not exceed.
	Limit figure `json:"limit_ms,omitempty"`
	// Writes are objects written per second, and WrittenSecond is what that puts on the disk per second, in KB.
	Writes        figure `json:"writes_per_second,omitempty"`
	WrittenSecond figure `json:"written_kb_per_second,omitempty"`
	// Sent is what clients receive per second, in KB.
	Sent figure `json:"sent_kb_per_second,omitempty"`
	// LoadCores and LoadRSS are what the load generator takes itself.
	LoadCores figure `json:"load_generator_cores,omitempty"`
	LoadRSS   figure `json:"load_generator_rss_mib,omitempty"`
	// Times is the size of a database in multiples of its objects' size.
	Times figure `json:"times_its_objects,omitempty"`
	// IdleCPU, and Postgres' part IdleDatabaseCPU, are in percent of one core.
	IdleCPU         figure `json:"idle_cpu_percent,omitempty"`
	IdleDatabaseCPU figure `json:"idle_database_cpu_percent,omitempty"`
	// Written is what is written to disk per operation and WrittenMinute per minute in KB, and WrittenYear per year, extrapolated from
	// the phase, in GB.
	Written       figure `json:"written_kb_per_operation,omitempty"`
	WrittenMinute figure `json:"written_kb_per_minute,omitempty"`
	WrittenYear   figure `json:"written_gb_per_year,omitempty"`
	// Sizes are the sizes of the binaries, in the order of the processes, or of the database, in MB.
	Sizes []figure `json:"megabytes,omitempty"`

	crowdFigures
	fleetFigures
}

// figure is a measurement, printed with at most three decimals.
type figure float64

// MarshalJSON rounds: more digits mean nothing.
func (f figure) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, math.Round(float64(f)*1000)/1000, 'f', -1, 64), nil
}

// write prints the result as one JSON line.
func (r result) write(out io.Writer) error {
	return json.NewEncoder(out).Encode(r)
}

// sample has the raw measurements of a load.
type sample struct {
	latencies   []time.Duration // one per operation
	wall        time.Duration
	cpu         time.Duration // with Postgres'
	databaseCPU time.Duration // the part of it
}

// add adds what another sample measured after this one.
func (s *sample) add(more sample) {
	s.latencies = append(s.latencies, more.latencies...)
	s.wall += more.wall
	s.cpu += more.cpu
	s.databaseCPU += more.databaseCPU
}

// result condenses the sample. CPU is per operation, even if the latencies are of something else.
func (s sample) result(clients, operations int) result {
	slices.Sort(s.latencies)
	return result{
		Clients:     clients,
		Operations:  operations,
		Seconds:     figure(s.wall.Seconds()),
		PerSecond:   figure(float64(operations) / s.wall.Seconds()),
		P50:         milliseconds(quantile(s.latencies, 50)),
		P99:         milliseconds(quantile(s.latencies, 99)),
		Longest:     milliseconds(quantile(s.latencies, 100)),
		CPU:         microseconds(s.cpu) / figure(operations),
		DatabaseCPU: microseconds(s.databaseCPU) / figure(operations),
	}
}

// quantile returns a percentile of sorted durations, 0 if there are none.
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

// readResults reads the output of a run. It skips the table and other terminal output: a result is a line that begins with a
// brace.
func readResults(in io.Reader) (results []result, err error) {
	lines := bufio.NewScanner(in)
	for number := 1; lines.Scan(); number++ {
		line := bytes.TrimSpace(lines.Bytes())
		if !bytes.HasPrefix(line, []byte("{")) {
			continue
		}
		var r result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("line %d is not a result of the benchmark: %w", number, err)
		}
		results = append(results, r)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(results) == 0 {
		return nil, errors.New("the input has no results; pass the output of a run, as in: go run ./test/bench plot <run.jsonl")
	}
	return results, nil
}

// tableOf prints the table of a recorded run.
func tableOf(in io.Reader, out io.Writer) error {
	results, err := readResults(in)
	if err != nil {
		return err
	}
	suite, err := suiteOf(results[0].Command)
	if err != nil {
		return err
	}
	return writeTable(out, suite.rows(), results)
}
