package scenarios

import (
	"flag"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

var upstream = flag.String("upstream", "", "folder with upstream's kube-controller-manager and kube-scheduler, with which scenarios run too")

// settings are flags of kube-controller-manager and of sqube. The periods of controllers are short to save time, and nodes are
// evicted at full speed even though the nodes of finished scenarios are gone too.
var settings = []string{
	"--node-monitor-period=1s", "--node-monitor-grace-period=10s", "--node-eviction-rate=10", "--unhealthy-zone-threshold=1",
	"--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
	"--horizontal-pod-autoscaler-initial-readiness-delay=1s", "--horizontal-pod-autoscaler-downscale-stabilization=1s",
}

// plane is where the controllers and the scheduler run.
type plane struct {
	name  string
	start func(t *testing.T, datastore string) *sqube.Server
}

// planes returns the planes that scenarios run on.
func planes() []plane {
	played := []plane{{"in-process", func(t *testing.T, datastore string) *sqube.Server {
		return sqube.Start(t, sqube.Options{Datastore: datastore, Args: slices.Concat([]string{"--control-plane"}, settings, sqube.RightsSuffice(t))})
	}}}
	if *upstream != "" {
		played = append(played, plane{"upstream", startUpstream})
	}
	return played
}

// startUpstream starts a server with the defaults, and upstream's programs.
func startUpstream(t *testing.T, datastore string) *sqube.Server {
	t.Helper()
	data := t.TempDir()
	s := sqube.Start(t, sqube.Options{Datastore: datastore, DataDir: data})
	key := func(name string) string { return filepath.Join(data, "pki", name) }
	harness.Launch(t, filepath.Join(*upstream, "kube-controller-manager"), append([]string{
		"--kubeconfig", s.Kubeconfig, "--use-service-account-credentials", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000",
		"--root-ca-file", key("ca.crt"), "--service-account-private-key-file", key("sa.key"),
		"--cluster-signing-cert-file", key("ca.crt"), "--cluster-signing-key-file", key("ca.key"),
	}, settings...)...)
	harness.Launch(t, filepath.Join(*upstream, "kube-scheduler"), "--kubeconfig", s.Kubeconfig, "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000")
	s.Logged(t, "a kube-controller-manager is active", 1)
	return s
}
