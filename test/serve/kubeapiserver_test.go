package serve

import (
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestFlagsThatDoNothing starts a server with the flags of kubeadm's manifest for kube-apiserver. For each flag without effect,
// the log mentions what to use instead.
func TestFlagsThatDoNothing(t *testing.T) {
	t.Parallel()
	certs := t.TempDir()
	s := serve(t, []string{
		"--logging-format=json", "--cert-dir", certs, "--etcd-servers=https://127.0.0.1:2379", "--etcd_prefix=/registry",
		"--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt", "--etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt",
		"--etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key", "--etcd-compaction-interval=5m", "--storage-backend=etcd3",
		"--storage-media-type=application/json", "--watch-cache=false", "--watch-cache-sizes=nodes#100", "--enable-garbage-collector",
		"--enable-logs-handler=false", "--kubelet-timeout=10s", "--kubelet-port=10250", "--log-flush-frequency=1s",
	})
	log := records(t, s.Log(t))
	for _, want := range [][2]string{
		{"--kubelet-port", "nodes report the port of their kubelet"},
		{"--cert-dir", certs},
		{"--etcd-servers,--etcd-prefix", "--datastore"},
		{"--etcd-cafile,--etcd-certfile,--etcd-keyfile", "sslrootcert"},
		{"--etcd-compaction-interval", "--compact-interval"},
		{"--storage-backend", "--datastore"},
		{"--storage-media-type", "JSON"},
		{"--watch-cache", "no cache"},
		{"--watch-cache-sizes", "--retention"},
		{"--enable-garbage-collector", "--controllers"},
		{"--enable-logs-handler", "standard error"},
		{"--kubelet-timeout", "--request-timeout"},
		{"--log-flush-frequency", "at once"},
	} {
		if !warned(log, want[0], want[1]) {
			t.Errorf("no warning about %s that mentions %q", want[0], want[1])
		}
	}
	help := succeeds(t, []string{"serve", "--help"})
	for _, hidden := range []string{"--etcd", "--watch-cache", "--storage-", "--peer-", "--version"} {
		for _, flag := range helpFlags(help) {
			if strings.HasPrefix("--"+flag.name, hidden) {
				t.Errorf("the help shows --%s", flag.name)
			}
		}
	}
	if got, want := succeeds(t, []string{"serve", "--version"}), "Kubernetes "+harness.KubernetesVersion(t)+"\n"; got != want {
		t.Errorf("--version prints %q instead of %q", got, want)
	}
}

// warned reports whether the log has a warning about a flag that contains part.
func warned(log []record, flag, part string) bool {
	for _, r := range log {
		if r.Level == "WARN" && r.Flag == flag && strings.Contains(r.Because+r.Hint+r.Folder, part) {
			return true
		}
	}
	return false
}
