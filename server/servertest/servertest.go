package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/go-logr/logr"

	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/pipenet"
	"github.com/sqube/sqube/sqlstore"
)

// startTimeout limits a start on a busy machine.
const startTimeout = time.Minute

// Options configure a server. The zero value is the default of sqube serve.
type Options struct {
	// From is what the server starts on a copy of: a file of sqube backup or Server.Save, the database file of a server, even a running one,
	// or a folder or s3://BUCKET/PREFIX that sqube backup --follow or serve --archive writes; or kube:CONTEXT, a running cluster of any kind,
	// whose objects are read through its API, without the values of Secrets. Optional.
	//
	// The copy has keys of its own: tokens and certificates of the former cluster are invalid. It connects to no node, pod, webhook or
	// aggregated API that its objects name, and leaves their webhooks of admission out, except at addresses of Server.Webhook,
	// Server.Listen and server.Options.Outbound. To read what is encrypted, Configure must set server.Options.Encryption.
	From string
	// At and AtRevision select the state of From at a time or a resourceVersion. Without both, it is the newest. With Virtual, time begins
	// there.
	At         time.Time
	AtRevision int64
	base       *Server // see Server.Fork
	// CRDs are files, and folders of files, with CustomResourceDefinitions in YAML or JSON. They are served when Start
	// returns. Other objects in the files are ignored.
	CRDs []string
	// Webhooks are files, and folders of files, with ValidatingWebhookConfigurations and MutatingWebhookConfigurations. If
	// they, or conversions in CRDs, name a Service, it is replaced with the address of the test's webhooks: Server.Webhook.
	Webhooks []string
	// NoControllers omits the controllers of sqube serve, like kube-apiserver: namespaces are not emptied, garbage is not
	// collected, service accounts are not created. Pods then need no service account.
	NoControllers bool
	// ControlPlane adds the other controllers of Kubernetes and the scheduler: controlplane.All, or controlplane.With and flags, of package
	// server/controlplane. A test binary that does not import it is smaller.
	ControlPlane func(*server.Options) error
	// FeatureGates are set for the process, and restored when the last server has stopped. A gate can't be changed while another server
	// runs.
	FeatureGates map[string]bool
	// Logs lets Kubernetes' libraries write their log (klog) to standard error. The process's first server decides, since klog has one
	// log for the process.
	Logs bool
	// Virtual runs the server in the bubble of testing/synctest in which it is started: the bubble's time is the server's. See the
	// package's documentation. Outside of a bubble it is an error, and so is a server without it inside of one.
	Virtual bool
	// History is how long versions of objects can be read after five minutes, and are in changes. Default 0: not at all.
	History time.Duration
	// Configure changes other options before the server starts. Optional.
	Configure func(*server.Options)
}

// Server is a server in this process.
type Server struct {
	// Config is for clients of an administrator in the group system:masters, without a rate limit (QPS -1).
	Config *rest.Config
	// Kubeconfig is a file for the same administrator. It is removed with the server.
	Kubeconfig string
	// Webhook is where the test serves webhooks. It is zero without Options.Webhooks and without conversions in CRDs.
	Webhook WebhookServer

	server  *server.Server
	folder  string
	network *pipenet.Network // nil in real time
	faults  *faults          // nil outside Explore
	engine  *sqlite.Engine   // of the database
	moment  time.Time        // whose state is copied; zero without Options.From
	allow   func(address string)
	// nodeGrace is how long a node may not renew its Lease until a controller takes it for dead; 0 without that controller.
	nodeGrace time.Duration
	gates     func() // restores the feature gates
	stop      context.CancelFunc
	ended     chan struct{} // closed when the server has stopped and err is set
	err       error
}

// Run starts a server that stops at the end of the test. It fails the test if the server does not start.
func Run(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatalf("start an API server: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	return s
}

// Start starts a server and returns when it is ready. The caller must stop the server. It is for TestMain. Errors name the option or the
// file that is invalid.
func Start(o Options) (_ *Server, err error) {
	if !o.Logs {
		quiet()
	}
	if err := checkTime(o); err != nil {
		return nil, err
	}
	s := &Server{ended: make(chan struct{})}
	if s.gates, err = setGates(o.FeatureGates); err != nil {
		return nil, err
	}
	if s.folder, err = os.MkdirTemp("", "sqube-test-"); err != nil {
		s.gates()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	built := make(chan *server.Server, 1)
	files, listener, options, err := s.begin(ctx, o)
	if err != nil {
		close(s.ended)
		return nil, errors.Join(err, s.Stop())
	}
	open := func(ctx context.Context, o sqlstore.Options) (*sqlstore.Store, error) {
		return sqlstore.Open(ctx, s.engine, o)
	}
	store, err := o.storeOptions()
	if err != nil {
		close(s.ended)
		return nil, errors.Join(err, listener.Close(), s.engine.Close(), s.Stop())
	}
	process := server.Process{Outlived: true, Options: options, Store: store, Open: open, Built: func(_ context.Context, s *server.Server) { built <- s }}
	go func() {
		defer close(s.ended)
		defer listener.Close()
		s.err = process.Run(ctx, listener)
	}()
	if err := s.prepare(files, built); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// begin does what comes before the server.
func (s *Server) begin(ctx context.Context, o Options) (files manifests, listener net.Listener, options *server.Options, err error) {
	if err = s.openDatabase(ctx, o); err != nil {
		return files, nil, nil, err
	}
	if o.Virtual {
		for _, begin := range []time.Time{sqlstore.FirstTime, s.moment} { // the first time that a store accepts, and that of a copy
			time.Sleep(time.Until(begin)) // at once: nothing else happens
		}
	}
	if files, err = s.read(o); err == nil {
		listener, options, err = s.options(o)
	}
	if err != nil {
		err = errors.Join(err, s.engine.Close())
	}
	return files, listener, options, err
}

// quiet discards what Kubernetes' libraries log with klog: a server writes hundreds of lines, in which a failing assertion drowns.
var quiet = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })

// options returns the options of a server on a free port.
func (s *Server) options(o Options) (net.Listener, *server.Options, error) {
	options := server.NewOptions()
	options.DataDir, options.InMemory = s.folder, true
	options.DropConnections = true
	s.allow = options.Allow
	if options.CopyOf = o.From; o.base != nil {
		options.CopyOf = "another server of the test"
	}
	if options.CopyOf != "" {
		options.KeysVary = true
		s.allow(s.Webhook.address())
	}
	options.Serving.BindAddress = net.IPv4(127, 0, 0, 1)
	if o.NoControllers {
		options.Controllers = []string{"-" + controllers.All}
		options.Admission.Disable("ServiceAccount")
	}
	if o.Virtual {
		s.network = &pipenet.Network{}
		options.Virtual, options.Dial = true, s.network.Dial
		options.Kubelet.PreferredAddressTypes = append([]string{string(corev1.NodeInternalDNS)}, options.Kubelet.PreferredAddressTypes...) // that of simulated nodes
		// Requests share the seats of priority and fairness by the time that they take, and here they take none.
		options.Features.EnablePriorityAndFairness, options.MaxInFlight, options.MaxMutatingInFlight = false, 0, 0
	}
	listener, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	options.Serving.BindPort = listener.Addr().(*net.TCPAddr).Port
	if o.ControlPlane != nil {
		if err := o.ControlPlane(options); err != nil {
			return nil, nil, errors.Join(err, listener.Close())
		}
	}
	if o.Configure != nil {
		o.Configure(options)
	}
	if err := options.Complete(); err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	if controllers.Runs(options.Controllers, options.OtherControllers, "node-lifecycle-controller") {
		s.nodeGrace = options.ControllerSettings.NodeLifecycleController.NodeMonitorGracePeriod.Duration
	}
	return listener, options, nil
}

// prepare waits until the server is ready and installs the objects in the options' files.
func (s *Server) prepare(files manifests, built <-chan *server.Server) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() {
		select {
		case <-s.ended:
			fail(errors.New("the server ended before it was ready"))
		case <-ctx.Done():
		}
	}()
	select {
	case s.server = <-built:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.server.Wait(ctx) != nil {
		return context.Cause(ctx)
	}
	s.Kubeconfig = s.server.AdminKubeconfig()
	if s.Config, err = clientcmd.BuildConfigFromFlags("", s.Kubeconfig); err != nil {
		return err
	}
	s.connect(s.Config)
	return s.install(ctx, files)
}

// User returns a configuration for clients of a user in groups. RBAC determines the user's permissions.
func (s *Server) User(name string, groups ...string) (*rest.Config, error) {
	kubeconfig, err := s.server.Kubeconfig(name, groups...)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of %s: %w", name, err)
	}
	s.connect(config)
	return config, nil
}

// Inside is User for clients in this process, without connections: the server believes what it is told.
func (s *Server) Inside(name string, groups ...string) *rest.Config {
	return s.server.Loopback(name, groups...)
}

// Revision returns the newest resourceVersion.
func (s *Server) Revision(ctx context.Context) (string, error) {
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return "", err
	}
	list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}

// History is what has been changed, as far back as Options.History says. It is read in this process, whatever the rights of anybody.
func (s *Server) History() *changes.Log { return s.server.History() }

// connect completes a client's configuration.
func (s *Server) connect(config *rest.Config) {
	config.QPS = -1
	if s.network != nil {
		config.Dial = s.network.Dial
	}
}

// Stop stops the server and removes its files. Running requests are finished, watches end. It may be called more than once.
func (s *Server) Stop() error {
	s.stop()
	<-s.ended
	s.gates()
	return errors.Join(s.err, os.RemoveAll(s.folder))
}
