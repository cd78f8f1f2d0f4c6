package patroni

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
)

// node is one of the machines: Patroni, and the Postgres that it manages.
type node struct {
	name, dir, program, config string
	as                         *syscall.Credential
	control                    string // HOST:PORT of Patroni's API, bypassing the proxy
	postgres, api              *faults.Proxy
	etcd                       *faults.Proxy
	keeper                     *harness.Keeper
	process                    *harness.Process // Patroni's
}

// settings are Patroni's. The TTL is the lowest that it accepts; loop_wait and retry_timeout are below their defaults (10 s) to
// match.
const settings = `
scope: sqube
name: %[1]s
restapi: {listen: "%[2]s", connect_address: "%[3]s"}
etcd3: {host: "%[4]s", use_proxies: true}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 2
    retry_timeout: 5
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters: {max_connections: 100, shared_buffers: 64MB, wal_log_hints: "on"}
  initdb: [encoding: UTF8, locale: C, data-checksums]
postgresql:
  listen: "%[5]s"
  connect_address: "%[6]s"
  data_dir: %[7]s/data
  bin_dir: %[8]s
  pgpass: %[7]s/pgpass
  authentication:
    superuser: &sqube {username: %[9]s, password: %[10]s}
    replication: *sqube
    rewind: *sqube
  pg_hba:
    - host all all 127.0.0.1/32 scram-sha-256
    - host replication all 127.0.0.1/32 scram-sha-256
  parameters: {unix_socket_directories: ""}
watchdog: {mode: "off"}
`

func (c *Cluster) newNode(t testing.TB, name, bin string) *node {
	t.Helper()
	n := &node{name: name, program: find(t, "patroni"), as: c.as, control: freeAddress(t)}
	n.dir, n.keeper = c.directory(t, name)
	listen := freeAddress(t)
	n.postgres, n.api, n.etcd = faults.NewProxy(t, listen), faults.NewProxy(t, n.control), faults.NewProxy(t, c.etcd)
	var err error
	n.config, err = c.write(n.dir, "patroni.yml", fmt.Sprintf(settings,
		name, n.control, n.api.Addr(), n.etcd.Addr(), listen, n.postgres.Addr(), n.dir, bin, user, c.password))
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(n.kill(), n.keeper.Dismiss()); err != nil {
			t.Errorf("end %s: %v", name, err)
		}
	})
	return n
}

func (n *node) logFile() string { return filepath.Join(n.dir, "log") }

// start starts Patroni, which starts Postgres.
func (n *node) start() error {
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(n.program, n.config)
	cmd.Dir, cmd.SysProcAttr = n.dir, &syscall.SysProcAttr{Credential: n.as}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "HOME=" + n.dir}
	cmd.Stdout, cmd.Stderr = log, log
	n.process, err = harness.StartProcess(cmd, n.keeper)
	return err
}

// kill ends the node like a power loss: Patroni, and all processes of Postgres.
func (n *node) kill() error {
	if err := n.process.End(syscall.SIGKILL); err != nil {
		return err
	}
	file := filepath.Join(n.dir, "data", "postmaster.pid")
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(content), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := signal(postmaster, syscall.SIGSTOP); err != nil { // so that it starts no others
		return err
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", postmaster))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, text := range strings.Fields(string(children)) {
		child, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if err := signal(child, syscall.SIGKILL); err != nil {
			return err
		}
	}
	if err := signal(postmaster, syscall.SIGKILL); err != nil {
		return err
	}
	// After a restart of the machine no process would have this PID. Here one has it until its parent, init, has reaped it.
	return os.Remove(file)
}

func signal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signaling Postgres: %w", err)
	}
	return nil
}

// cutOff drops all traffic to the node, and from it to etcd, until resume.
func (n *node) cutOff() {
	for _, p := range []*faults.Proxy{n.postgres, n.api, n.etcd} {
		p.Drop()
	}
}

func (n *node) resume() {
	for _, p := range []*faults.Proxy{n.postgres, n.api, n.etcd} {
		p.Resume()
	}
}
