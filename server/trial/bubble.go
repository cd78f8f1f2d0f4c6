package trial

import (
	"errors"
	"flag"
	"io"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// inBubbles runs functions at once, each in a bubble of testing/synctest of its own, and returns when all have returned. It can be called once in a
// process: goroutines that the functions leave behind stay where they are, as their bubbles' time does.
func inBubbles(functions ...func()) {
	ended := make(chan struct{}, len(functions))
	never := make(chan struct{}) // from outside: whoever waits for it stops a bubble's clock
	var tests []testing.InternalTest
	for _, f := range functions {
		tests = append(tests, testing.InternalTest{Name: "trial", F: func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(*testing.T) {
				f()
				ended <- struct{}{}
				<-never
			})
		}})
	}
	// Package testing makes bubbles for tests alone. These never end, so it prints nothing.
	m := testing.MainStart(noTests{}, tests, nil, nil, nil)
	if err := flag.CommandLine.Parse(nil); err != nil { // else it takes the process's arguments for its own
		panic(err)
	}
	go m.Run()
	for range functions {
		<-ended
	}
}

// noTests is what a test binary would give package testing.
type noTests struct{}

// corpusEntry is what package testing calls so, an alias that it does not export.
type corpusEntry = struct {
	Parent     string
	Path       string
	Data       []byte
	Values     []any
	Generation int
	IsSeed     bool
}

var errNoTests = errors.New("there are no tests in this process")

func (noTests) ImportPath() string                       { return "" }
func (noTests) ModulePath() string                       { return "" }
func (noTests) MatchString(string, string) (bool, error) { return true, nil }
func (noTests) SetPanicOnExit0(bool)                     {}
func (noTests) StartCPUProfile(io.Writer) error          { return errNoTests }
func (noTests) StopCPUProfile()                          {}
func (noTests) StartTestLog(io.Writer)                   {}
func (noTests) StopTestLog() error                       { return nil }
func (noTests) WriteProfileTo(string, io.Writer, int) error {
	return errNoTests
}
func (noTests) CoordinateFuzzing(time.Duration, int64, time.Duration, int64, int, []corpusEntry, []reflect.Type, string, string) error {
	return errNoTests
}
func (noTests) RunFuzzWorker(func(corpusEntry) error) error { return errNoTests }
func (noTests) ReadCorpus(string, []reflect.Type) ([]corpusEntry, error) {
	return nil, errNoTests
}
func (noTests) CheckCorpus([]any, []reflect.Type) error { return nil }
func (noTests) ResetCoverage()                          {}
func (noTests) SnapshotCoverage()                       {}
func (noTests) InitRuntimeCoverage() (mode string, tearDown func(string, string) (string, error), snapcov func() float64) {
	return "", nil, nil
}
