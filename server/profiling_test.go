package server

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestDebugSocketInUse leaves a socket alone that another process listens on, and replaces one that none does.
func TestDebugSocketInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	first, err := listenProfiling(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenProfiling(path); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a second server: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as if it were killed
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := listenProfiling(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
