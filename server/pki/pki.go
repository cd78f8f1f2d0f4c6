package pki

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/server/wholefile"
)

// Options describe the certificates.
type Options struct {
	// BindAddress is the address that the server listens on. Nil or unspecified (0.0.0.0, ::) means all addresses of this
	// machine, which are then all in the serving certificate.
	BindAddress net.IP
	// ServiceIP is the address of the Service kubernetes.default, the first of the service range. May be nil.
	ServiceIP net.IP
	// ExtraNames are more DNS names and IP addresses for the serving certificate.
	ExtraNames []string

	// Server is the URL in the administrator's kubeconfig, such as https://127.0.0.1:6443. If empty, no kubeconfig is written.
	Server string
	// InMemory keeps all files except that kubeconfig in memory, until [PKI.Close]. On systems other than Linux they are in a
	// temporary folder.
	InMemory bool
	// ServingCertFile is the operator's own serving certificate (--tls-cert-file). The administrator's kubeconfig trusts its chain
	// too. PKI.Serving is still created.
	ServingCertFile string

	// ServerCA verifies the server at which clients are told to find this one, in PEM, if that is another server, which passes requests on. CA
	// only issues client certificates then.
	ServerCA []byte

	// SharedStore keeps the files that all servers of the cluster share. If nil, files are not shared.
	SharedStore SharedStore
	// Guard decides whether the shared files may be used. If nil, any may.
	Guard Guard

	// Now is the clock, time.Now if nil.
	Now func() time.Time

	memory *memoryFiles // with InMemory, set by the first Ensure
}

func (o Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// PKI names the files that a server uses. All of them exist after [Ensure].
type PKI struct {
	// CA signs serving and client certificates. Its key may be missing if nothing needs to be issued.
	CA Pair
	// Serving is the server's own certificate.
	Serving Pair
	// Admin is a client certificate of kubernetes-admin in system:masters.
	Admin Pair
	// KubeletClient is the client certificate that the server presents to kubelets, of [KubeletClientName] without groups.
	KubeletClient Pair
	// FrontProxyCA signs FrontProxyClient, which the server presents to extension API servers (the aggregation layer).
	FrontProxyCA     Pair
	FrontProxyClient Pair
	// ServiceAccountKey is the private key file for service account tokens.
	ServiceAccountKey string
	// AdminKubeconfig is for people: a kubeconfig with Admin's certificate embedded.
	AdminKubeconfig string

	dataDir          string
	ca, frontProxyCA *authority
	trust            []byte // CA's certificate in PEM
	opts             Options
	ensured          time.Time // by the wall clock
}

// KubeletClientName is the user that kubelets see, as in a kubeadm cluster.
const KubeletClientName = "kube-apiserver-kubelet-client"

// FrontProxyName is the common name of the front-proxy client certificate, for --requestheader-allowed-names.
const FrontProxyName = "front-proxy-client"

// fileNames are the names of all files except the kubeconfig.
var fileNames = slices.Concat(sharedFiles, []string{
	servingName + ".key", servingName + ".crt", adminName + ".key", adminName + ".crt",
	kubeletClientName + ".key", kubeletClientName + ".crt", frontProxyClientName + ".key", frontProxyClientName + ".crt",
})

const (
	caName, frontProxyCAName = "ca", "front-proxy-ca"
	servingName              = "apiserver"
	adminName                = "admin"
	kubeletClientName        = "apiserver-kubelet-client"
	frontProxyClientName     = "front-proxy-client"
)

// layout returns the names of the files in a data directory.
func layout(dataDir string, o Options) *PKI {
	p := &PKI{dataDir: dataDir, opts: o}
	p.CA, p.FrontProxyCA = p.pair(caName), p.pair(frontProxyCAName)
	p.Serving, p.Admin = p.pair(servingName), p.pair(adminName)
	p.KubeletClient, p.FrontProxyClient = p.pair(kubeletClientName), p.pair(frontProxyClientName)
	p.ServiceAccountKey = p.path(serviceAccountKey)
	p.AdminKubeconfig = filepath.Join(dataDir, "admin.kubeconfig")
	return p
}

func (p *PKI) path(name string) string {
	if p.opts.memory != nil {
		return p.opts.memory.path(name)
	}
	return filepath.Join(p.folder(), name)
}

func (p *PKI) pair(name string) Pair {
	return Pair{CertFile: p.path(name + ".crt"), KeyFile: p.path(name + ".key")}
}

// folder is the folder of the files that are not in memory.
func (p *PKI) folder() string { return filepath.Join(p.dataDir, "pki") }

// CACertFile returns the path of the cluster's CA certificate under dataDir, which [Ensure] creates.
func CACertFile(dataDir string) string { return layout(dataDir, Options{}).CA.CertFile }

// Ensure creates the missing files under dataDir/pki, renews certificates that expire soon or lack a name, and writes the
// administrator's kubeconfig. If there is a shared store, it has precedence, and the files are copies. Ensure may be called at any
// time, by several processes at once, and after a power failure during an earlier call.
//
// For a file that can't be used, or two that do not match, it returns a [*FileError] with the path and what to do. Errors of the
// shared store are returned unchanged.
func Ensure(ctx context.Context, dataDir string, o Options) (_ *PKI, err error) {
	if o.InMemory && o.memory == nil {
		files, failed := newMemoryFiles()
		if failed != nil {
			return nil, fmt.Errorf("keep keys in memory: %w", failed)
		}
		o.memory = &files
		defer func() {
			if err != nil {
				err = errors.Join(err, files.close())
			}
		}()
	}
	p := layout(dataDir, o)
	p.ensured = o.now().Round(0)
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	if err := p.ensureShared(ctx); err != nil {
		return nil, err
	}
	if err := p.ensureLeaves(); err != nil {
		return nil, err
	}
	if o.Server != "" {
		if err := p.writeAdminKubeconfig(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// enter creates the private folders, and locks them until leave is called.
func (p *PKI) enter() (leave func() error, err error) {
	if p.opts.memory != nil {
		if err := wholefile.MakeFolder(p.dataDir, dirMode); err != nil {
			return nil, &FileError{p.dataDir, err, hintAccess}
		}
		return func() error { return nil }, nil
	}
	dir := p.folder()
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unlock())
		}
	}()
	// Other processes may write other files to the data directory, such as a backup. The database is not restored while it is served.
	for _, left := range []struct{ folder, prefix string }{{dir, "."}, {p.dataDir, ".admin.kubeconfig."}, {p.dataDir, ".sqube.db."}} {
		if err := wholefile.RemoveUnfinished(left.folder, left.prefix); err != nil {
			return nil, &FileError{left.folder, err, hintAccess}
		}
	}
	if err := restrictFiles(dir); err != nil {
		return nil, err
	}
	return unlock, restrictDataDir(p.dataDir, "pki", "admin.kubeconfig", "sqube.db", "lost+found")
}

// Close closes files in memory, which must no longer be used.
func (p *PKI) Close() error {
	if p.opts.memory == nil {
		return nil
	}
	return p.opts.memory.close()
}

// Open reads the authority that [Ensure] created, in order to issue kubeconfigs. It does not write to files.
func Open(dataDir string) (*PKI, error) {
	p := layout(dataDir, Options{})
	files, err := p.readShared()
	if err != nil {
		return nil, err
	}
	if files[caCert] == nil {
		return nil, &FileError{p.CA.CertFile, errors.New("there is no certificate authority yet"),
			"start the server once (sqube serve), or give its data directory"}
	}
	return p.opened(files)
}

// OpenShared is Open for the content of a shared store. The data directory need not exist.
func OpenShared(files Shared, dataDir string) (*PKI, error) {
	return layout(dataDir, Options{}).opened(files)
}

func (p *PKI) opened(files Shared) (*PKI, error) {
	if err := p.use(files); err != nil {
		return nil, err
	}
	return p, p.readServed()
}

// ensureLeaves creates or renews this server's own certificates.
func (p *PKI) ensureLeaves() error {
	serving, err := servingSubject(p.opts)
	if err != nil {
		return err
	}
	client := x509.ExtKeyUsageClientAuth
	for _, leaf := range []struct {
		pair   Pair
		issuer *authority
		is     subject
	}{
		{p.Serving, p.ca, serving},
		{p.Admin, p.ca, subject{name: "kubernetes-admin", groups: []string{user.SystemPrivilegedGroup}, usage: client}},
		{p.KubeletClient, p.ca, subject{name: KubeletClientName, usage: client}},
		{p.FrontProxyClient, p.frontProxyCA, subject{name: FrontProxyName, usage: client}},
	} {
		if leaf.pair == p.Admin && p.opts.memory != nil && p.opts.Server == "" {
			continue // it would be for the kubeconfig, and nobody finds it in memory
		}
		if err := ensureLeaf(leaf.pair, leaf.issuer, leaf.is, p.opts.now()); err != nil {
			return err
		}
	}
	return nil
}
