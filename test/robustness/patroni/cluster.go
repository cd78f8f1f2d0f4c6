package patroni

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// user is the superuser of Postgres, for sqube, replication and Patroni itself.
const user = "sqube"

// startTimeout limits the start of all nodes on a busy machine.
const startTimeout = 3 * time.Minute

// Cluster is the nodes with etcd and HAProxy.
type Cluster struct {
	nodes    []*node
	etcd     string // HOST:PORT
	haproxy  string // HOST:PORT
	password string
	as       *syscall.Credential
}

// Start starts three nodes, and waits until one leads, with a synchronous standby.
func Start(t testing.TB) *Cluster {
	t.Helper()
	as, err := harness.OrdinaryUser()
	harness.Must(t, err)
	bin, err := harness.PostgresPrograms()
	harness.Must(t, err)
	c := &Cluster{as: as, password: rand.Text()}
	c.startEtcd(t)
	for i := range 3 {
		c.nodes = append(c.nodes, c.newNode(t, fmt.Sprintf("node%d", i+1), bin))
	}
	for _, n := range c.nodes {
		harness.Must(t, n.start())
	}
	c.startHAProxy(t)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := c.AwaitWhole(ctx); err != nil {
		t.Fatalf("%v\n%s", err, c.Logs())
	}
	return c
}

// DSN returns the superuser's DSN of the cluster's database: through HAProxy, which forwards to the primary, or with the
// addresses of all nodes.
func (c *Cluster) DSN(throughHAProxy bool) string {
	query := url.Values{"sslmode": {"disable"}}
	hosts := []string{c.haproxy}
	if !throughHAProxy {
		query.Set("target_session_attrs", "read-write")
		hosts = nil
		for _, n := range c.nodes {
			hosts = append(hosts, n.postgres.Addr())
		}
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(user, c.password), Host: strings.Join(hosts, ","), Path: "/postgres", RawQuery: query.Encode()}
	return u.String()
}

// Logs returns the last lines of the logs of Patroni on each node.
func (c *Cluster) Logs() string {
	var all strings.Builder
	for _, n := range c.nodes {
		log, err := os.ReadFile(n.logFile())
		if err != nil {
			log = []byte(err.Error())
		}
		lines := strings.Split(string(log), "\n")
		fmt.Fprintf(&all, "%s:\n%s\n", n.name, strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
	return all.String()
}

// directory creates a directory owned by the user that the programs run as, and the keeper that removes it.
func (c *Cluster) directory(t testing.TB, name string) (string, *harness.Keeper) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sqube-"+name+"-")
	harness.Must(t, err)
	keeper, err := harness.NewKeeper(dir)
	harness.Must(t, err)
	harness.Must(t, c.handOver(dir))
	return dir, keeper
}

func (c *Cluster) handOver(path string) error {
	if c.as == nil {
		return nil
	}
	return os.Chown(path, int(c.as.Uid), int(c.as.Gid))
}

// write creates a file that the user that the programs run as can read.
func (c *Cluster) write(dir, name, content string) (path string, err error) {
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return "", err
	}
	return path, c.handOver(path)
}

// freeAddress returns an unused HOST:PORT.
func freeAddress(t testing.TB) string {
	t.Helper()
	port, err := harness.FreePort()
	harness.Must(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
