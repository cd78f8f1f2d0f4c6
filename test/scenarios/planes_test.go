package scenarios

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
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
	launch(t, "kube-controller-manager", append([]string{
		"--kubeconfig", s.Kubeconfig, "--use-service-account-credentials", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000",
		"--root-ca-file", key("ca.crt"), "--service-account-private-key-file", key("sa.key"),
		"--cluster-signing-cert-file", key("ca.crt"), "--cluster-signing-key-file", key("ca.key"),
	}, settings...)...)
	launch(t, "kube-scheduler", "--kubeconfig", s.Kubeconfig, "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000")
	s.Logged(t, "a kube-controller-manager is active", 1)
	return s
}

// launch runs one of upstream's programs until the test ends. If the test fails, it logs the program's output.
func launch(t *testing.T, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	harness.Must(t, err)
	defer log.Close() // the child has its own descriptor
	keeper, err := harness.NewKeeper("")
	harness.Must(t, err)
	cmd := exec.Command(filepath.Join(*upstream, program), args...)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := harness.StartProcess(cmd, keeper)
	if err != nil {
		t.Fatal(errors.Join(err, keeper.Dismiss()))
	}
	t.Cleanup(func() {
		if t.Failed() {
			written, err := os.ReadFile(log.Name())
			t.Logf("the end of %s's log: %v\n%s", program, err, written[max(0, len(written)-8000):])
		}
		if err := errors.Join(process.End(syscall.SIGKILL), keeper.Dismiss()); err != nil {
			t.Errorf("end %s: %v", program, err)
		}
	})
}
