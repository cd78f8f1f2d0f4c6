package accuracy

import (
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
	"github.com/sqube/sqube/test/harness/sqube"
)

var upstream = flag.String("upstream", "", "folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler, which make the cluster")

// cluster is where changes are made that have been tried.
type cluster struct {
	kubernetes.Interface
	dynamic    dynamic.Interface
	config     *rest.Config
	kubeconfig string
	env        []string // of kubectl
	servers    servers

	mu     sync.Mutex
	joined map[string]*simnodes.Nodes // by the name of each node
}

// newCluster starts a cluster without nodes.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{joined: map[string]*simnodes.Nodes{}}
	if *upstream == "" {
		c.kubeconfig = sqube.Start(t, sqube.Options{Args: []string{"--control-plane"}}).Kubeconfig
	} else {
		c.kubeconfig = startUpstream(t)
	}
	var err error
	c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	harness.Must(t, err)
	c.config.QPS = -1
	c.Interface, err = kubernetes.NewForConfig(c.config)
	harness.Must(t, err)
	c.dynamic, err = dynamic.NewForConfig(c.config)
	harness.Must(t, err)
	c.env = sqube.KubectlEnv(t, c.kubeconfig)
	c.servers.start(t, c)
	return c
}

// join joins nodes.
func (c *cluster) join(t *testing.T, o simnodes.Options) {
	nodes := fakenode.Join(t, c.config, o)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range nodes.Names() {
		c.joined[name] = nodes
	}
}

// silence lets a node fail.
func (c *cluster) silence(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joined[name].Silence(name)
}

// startUpstream starts Kubernetes' own control plane with its defaults, and returns an administrator's kubeconfig.
func startUpstream(t *testing.T) (kubeconfig string) {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	ports := make([]int, 3)
	for i := range ports {
		port, err := harness.FreePort()
		harness.Must(t, err)
		ports[i] = port
	}
	address := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i])) }
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	harness.Must(t, err)
	kubeconfig = path("kubeconfig")
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "tokens": []byte("secret,admin,admin,system:masters\n")} {
		harness.Must(t, os.WriteFile(path(name), content, 0o600))
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["real"] = &clientcmdapi.Cluster{Server: "https://" + address(2), CertificateAuthorityData: certificate}
	config.AuthInfos["real"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["real"] = &clientcmdapi.Context{Cluster: "real", AuthInfo: "real"}
	config.CurrentContext = "real"
	harness.Must(t, clientcmd.WriteToFile(*config, kubeconfig))

	launch := func(program string, args ...string) { harness.Launch(t, filepath.Join(*upstream, program), args...) }
	client, peer := "http://"+address(0), "http://"+address(1)
	launch("etcd", "--data-dir", path("etcd"), "--log-level", "error", "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--unsafe-no-fsync")
	launch("kube-apiserver", "--etcd-servers", client, "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(ports[2]),
		"--tls-cert-file", path("tls.crt"), "--tls-private-key-file", path("tls.key"), "--token-auth-file", path("tokens"),
		"--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/16", "--allow-privileged",
		"--service-account-issuer", "https://kubernetes.default.svc", "--endpoint-reconciler-type", "none",
		"--service-account-key-file", path("tls.key"), "--service-account-signing-key-file", path("tls.key"))
	controllers := []string{"--kubeconfig", kubeconfig, "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000"}
	admin, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	harness.Must(t, err)
	probe, err := kubernetes.NewForConfig(admin)
	harness.Must(t, err)
	harness.Retry(t, "kube-apiserver is ready", func() error {
		return probe.RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
	launch("kube-controller-manager", slices.Concat(controllers, []string{"--use-service-account-credentials",
		"--root-ca-file", path("tls.crt"), "--service-account-private-key-file", path("tls.key")})...)
	launch("kube-scheduler", controllers...)
	return kubeconfig
}

// description says what the cluster is.
func (c *cluster) description() string {
	if *upstream == "" {
		return "sqube serve --control-plane"
	}
	return fmt.Sprintf("kube-apiserver, kube-controller-manager and kube-scheduler of %s", *upstream)
}
