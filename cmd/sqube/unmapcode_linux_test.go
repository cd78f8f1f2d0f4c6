package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestUnmapCode unmaps the program's code while the program runs.
func TestUnmapCode(t *testing.T) {
	before := mappedFiles(t)
	harness.Must(t, unmapCode())
	if after := mappedFiles(t); after >= before {
		t.Errorf("%d kB of files were mapped, and %d afterwards", before, after)
	}
}

// mappedFiles returns the size of the file pages that are mapped into the process, in kB.
func mappedFiles(t *testing.T) (size int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	harness.Must(t, err)
	_, text, _ := strings.Cut(string(status), "\nRssFile:")
	if _, err := fmt.Sscanf(text, "%d kB", &size); err != nil {
		t.Fatalf("%s: %v", status, err)
	}
	return size
}
