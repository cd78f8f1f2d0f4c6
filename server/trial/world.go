package trial

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/simnodes"
)

// world is a copy of a cluster in which time passes: its control plane, and around it what is simulated.
type world struct {
	*servertest.Server
	client kubernetes.Interface // of the simulation
	nodes  atomic.Pointer[simnodes.Nodes]
	loads  *loads

	webhooks *webhooks
}

// A copy comes to rest before the change is made.
const (
	restful  = 10 * time.Second // for so long nothing is written
	settling = 3 * time.Minute  // the copy gets at most
)

// never is how often nodes renew their Leases: the control plane does not look at these.
const never = 10 * 365 * 24 * time.Hour

// begin makes a world and lets it come to rest.
func (o *Options) begin(ctx context.Context, outside *outsideWebhooks, programs *beside) (*world, error) {
	w := &world{loads: newLoads()}
	simulation := controlplane.Simulation{
		Alive: func(node string) bool {
			nodes := w.nodes.Load()
			return nodes != nil && nodes.Alive(node)
		},
		Metrics: func(shared informers.SharedInformerFactory) metrics.MetricsClient { return w.loads.watch(shared) },
	}
	var err error
	configure := func(options *server.Options) {
		if o.Configure != nil {
			o.Configure(options)
		}
		w.webhooks = outside.configure(options)
	}
	if w.Server, err = servertest.Start(servertest.Options{From: o.From, Virtual: true, ControlPlane: simulation.With(), History: historyOf(o.For), Configure: configure}); err != nil {
		return nil, err
	}
	if w.client, err = kubernetes.NewForConfig(w.as("simulation")); err != nil {
		return nil, err
	}
	nodes, err := w.Join(ctx, simnodes.Options{Keep: true, LeaseInterval: never, StatusInterval: never})
	if err != nil {
		return nil, fmt.Errorf("simulate the nodes: %w", err)
	}
	w.nodes.Store(nodes)
	if err := w.simulate(ctx); err != nil {
		return nil, err
	}
	if err := o.grant(ctx, w.client); err != nil {
		return nil, err
	}
	if err := programs.join(w); err != nil {
		return nil, err
	}
	return w, w.settle(ctx)
}

// Stop ends the server and its webhooks.
func (w *world) Stop() error { return errors.Join(w.webhooks.listener.Close(), w.Server.Stop()) }

// as returns the configuration of a simulated part of the cluster.
func (w *world) as(name string) *rest.Config {
	return w.Inside("system:simulated:"+name, user.SystemPrivilegedGroup)
}

// settle waits until the copy is at rest.
func (w *world) settle(ctx context.Context) error {
	last, since := "", time.Now()
	for begin := since; time.Since(since) < restful && time.Since(begin) < settling; time.Sleep(time.Second) {
		list, err := w.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		if list.ResourceVersion != last {
			last, since = list.ResourceVersion, time.Now()
		}
	}
	return nil
}

// lose lets nodes fail, as when they lose power.
func (w *world) lose(names []string) error {
	nodes := w.nodes.Load()
	for _, name := range names {
		if !nodes.Alive(name) {
			return fmt.Errorf("node %s can't be lost: the copy has no such node that is ready", name)
		}
	}
	for _, name := range names {
		nodes.Silence(name)
	}
	return nil
}
