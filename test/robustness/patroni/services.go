package patroni

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// startEtcd starts the store in which the nodes agree on the leader. It has one member, since its faults are not tested here.
func (c *Cluster) startEtcd(t testing.TB) {
	t.Helper()
	dir, keeper := c.directory(t, "etcd")
	c.etcd = freeAddress(t)
	peers := "http://" + freeAddress(t)
	c.serve(t, keeper, dir, "etcd", "--data-dir", filepath.Join(dir, "data"),
		"--listen-client-urls", "http://"+c.etcd, "--advertise-client-urls", "http://"+c.etcd,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
}

// startHAProxy starts the load balancer, which finds the primary through Patroni's API, as Patroni documents.
func (c *Cluster) startHAProxy(t testing.TB) {
	t.Helper()
	dir, keeper := c.directory(t, "haproxy")
	c.haproxy = freeAddress(t)
	var config strings.Builder
	fmt.Fprintf(&config, `defaults
	mode tcp
	retries 2
	timeout client 30m
	timeout connect 4s
	timeout server 30m
	timeout check 2s
listen primary
	bind %s
	option httpchk OPTIONS /primary
	http-check expect status 200
	default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
`, c.haproxy)
	for _, n := range c.nodes {
		_, port, _ := strings.Cut(n.api.Addr(), ":")
		fmt.Fprintf(&config, "\tserver %s %s check port %s\n", n.name, n.postgres.Addr(), port)
	}
	file, err := c.write(dir, "haproxy.cfg", config.String())
	harness.Must(t, err)
	c.serve(t, keeper, dir, "haproxy", "-db", "-f", file)
}

// serve runs a program until the test ends.
func (c *Cluster) serve(t testing.TB, keeper *harness.Keeper, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(find(t, program), args...)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: c.as}
	process, err := harness.StartProcess(cmd, keeper)
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(process.End(syscall.SIGKILL), keeper.Dismiss()); err != nil {
			t.Errorf("end %s: %v", program, err)
		}
	})
}

// find returns the path of a program, which may be in a directory that only root has in its PATH.
func find(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		path = "/usr/sbin/" + program
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s is missing; install it: make patroni", program)
		}
	}
	return path
}
