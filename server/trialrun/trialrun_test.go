package trialrun

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// program returns a shell script in place of sqube.
func program(t *testing.T, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sqube")
	harness.Must(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o700))
	return file
}

// TestRun returns what the process prints, whatever its exit code, or why it could not try anything, and leaves no files.
func TestRun(t *testing.T) {
	var folder string
	prepare := func(dir string) ([]string, error) {
		folder = dir
		return []string{"--for", "1h"}, nil
	}
	result, err := (&Trial{Program: program(t, `echo "{\"verdict\": \"$* $(cat)\"}"; exit 1`), Input: []byte("input"), Prepare: prepare}).Run(t.Context())
	if want := `{"verdict": "try -o json --for 1h input"}`; err != nil || strings.TrimSpace(string(result)) != want {
		t.Errorf("it returns %s, %v, want %s", result, err, want)
	}
	_, err = (&Trial{Program: program(t, `touch $TMPDIR/left; echo a note >&2; echo "sqube: no such cluster" >&2; exit 2`), Prepare: prepare}).Run(t.Context())
	if err == nil || err.Error() != "this could not be tried: no such cluster" {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left", folder)
	}
}

// TestEnds ends the process with its context, and lets one run at a time.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	long := &Trial{Program: program(t, "echo > "+started+"; exec sleep 1000"), Prepare: func(string) ([]string, error) { return nil, nil }}
	ended := make(chan error)
	go func() {
		_, err := long.Run(ctx)
		ended <- err
	}()
	harness.Eventually(t, "the process runs", func() bool {
		_, err := os.Stat(started)
		return err == nil
	})
	if _, err := (&Trial{}).Run(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("a second one: %v", err)
	}
	cancel(errors.New("the page has gone"))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the page has gone") {
		t.Errorf("it ends with %v", err)
	}
}
