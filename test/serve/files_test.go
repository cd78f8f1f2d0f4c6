package serve

import (
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// TestOrdinaryRun checks what a server tells systemd, what it logs, which is little and no warning, and its data directory after a first
// start, and after a second one.
func TestOrdinaryRun(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	harness.Must(t, err)
	defer systemd.Close()
	s := serve(t, []string{"--logging-format", "json"}, env("NOTIFY_SOCKET="+socket))
	harness.Must(t, systemd.SetReadDeadline(time.Now().Add(harness.Patience)))
	word := make([]byte, 100)
	if n, err := systemd.Read(word); err != nil || string(word[:n]) != "READY=1" {
		t.Errorf("systemd gets %q, %v", word[:n], err)
	}
	settle(t, s)
	s.Stop(t)
	var said []string
	for _, r := range records(t, s.Log(t)) {
		said = append(said, r.Level+" "+r.Msg)
	}
	if !slices.Equal(said, []string{"INFO starting", "INFO ready", "INFO stopping; a second signal ends the process at once", "INFO stopped"}) {
		t.Errorf("the log has %q", said)
	}
	first := files(t, s.DataDir)
	want := []string{
		"admin.kubeconfig", "pki/admin.crt", "pki/admin.key", "pki/apiserver-kubelet-client.crt", "pki/apiserver-kubelet-client.key",
		"pki/apiserver.crt", "pki/apiserver.key", "pki/ca.crt", "pki/ca.key", "pki/database", "pki/front-proxy-ca.crt", "pki/front-proxy-ca.key",
		"pki/front-proxy-client.crt", "pki/front-proxy-client.key", "pki/sa.key", "sqube.db", "sqube.db-mark", "sqube.db-reserve",
	}
	if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, want) {
		t.Errorf("the data directory has\n%q, want\n%q", got, want)
	}

	s.Start(t)
	settle(t, s)
	s.Stop(t)
	second := files(t, s.DataDir)
	for name, text := range first {
		if name != "sqube.db" && name != "sqube.db-mark" && second[name] != text {
			t.Errorf("%s has changed after a second start", name)
		}
	}
}

// files returns the contents of all files under dir, and fails the test if others than the owner have access to any.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if entry.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has the mode %o, want %o", path, info.Mode().Perm(), want)
		}
		if entry.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		found[name] = string(text)
		return err
	})
	harness.Must(t, err)
	return found
}
