package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	netutils "k8s.io/utils/net"

	"github.com/sqube/sqube/server/bodies"
	"github.com/sqube/sqube/server/bootstrap"
	"github.com/sqube/sqube/server/connections"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// base is the foundation of all other parts.
type base struct {
	options       *Options
	id            string // unique among the servers of the cluster
	store         *sqlstore.Store
	pki           *pki.PKI
	encryption    *encryption.Encryption
	objectCounter *objectCounter
	fresh         bool // the database had just been created
	written       *written
	storage       generic.StorageDecorator // makes a resource's storage, encrypted and counted

	loopback  *loopback.Transport
	client    kubernetes.Interface // over the loopback
	feed      *informer.Feed       // of the store
	informers *informer.Factory    // fed by it, shared by everything in the process
	// informerName is that of the informers in metrics, nil if another server of the process has it.
	informerName *cache.InformerName

	outbound    outbound
	connections *connections.Connections
	debugSocket net.Listener // nil without --debug-socket-path
	phase       phase
	parts       []part // to be ended, the last one first
}

// part is something that a server has made, and ends.
type part struct {
	name string
	end  func() error
}

func (b *base) ends(name string, end func() error) { b.parts = append(b.parts, part{name, end}) }

// end ends the informers and everything that requests use. The server need not be complete. Informers end while they can still send requests,
// since they log a request that fails before.
func (b *base) end() error {
	b.phase.drain()
	b.phase.end()
	b.ends("in-process requests", func() error { _ = b.loopback.Shutdown(context.Background()); return nil }) // stopWithin limits the time
	if b.informers != nil {
		b.ends("informers", func() error { b.informers.Shutdown(); return nil })
	}
	var errs []error
	for _, part := range slices.Backward(b.parts) {
		errs = append(errs, stopWithin(b.options.ShutdownGracePeriod, part.name, part.end))
	}
	return errors.Join(errs...)
}

// endReads ends what reads the store without requests, so that nothing is said of a store that is closed.
func (b *base) endReads() {
	b.phase.end()
	if b.informers != nil {
		_ = stopWithin(b.options.ShutdownGracePeriod, "informers", func() error { b.informers.Shutdown(); return nil }) // the process ends
	}
}

// newBase returns what it has made of a base also with an error, so that the caller can end it.
func newBase(ctx context.Context, o *Options, store *sqlstore.Store) (b *base, err error) {
	b = &base{options: o, store: store, objectCounter: newObjectCounter(o.Hosted != nil), loopback: newLoopback(o), connections: connections.New(), phase: newPhase()}
	if o.Hosted != nil {
		b.connections = o.Hosted.Connections
	}
	b.fresh = store.Stats().Revision <= sqlstore.EmptyRevision
	b.written = newWritten(o, b.fresh)
	if b.debugSocket, err = listenProfiling(o.Features.DebugSocketPath); err != nil {
		return b, err
	}
	if b.debugSocket != nil {
		b.ends("debug socket", func() error { _ = b.debugSocket.Close(); return nil }) // it is closed already if it was served
	}
	if b.id, err = bootstrap.ServerID(o.URL()); err != nil { // the URL distinguishes servers on one host
		return b, err
	}
	if b.outbound, err = newOutbound(o, b.id); err != nil {
		return b, err
	}
	b.ends("tracing", func() error { b.outbound.close(context.Background()); return nil }) // the exporter has its own time limit
	if b.encryption, err = encryption.Load(o.Encryption, b.id); err != nil {
		return b, err
	}
	b.ends("encryption", func() error { b.encryption.Close(); return nil })
	b.storage = bodies.Stored(b.objectCounter.decorate(b.encryption.Storage(apistorage.PartDecorator(store, resources.Kinds, o.memoryParts()))))
	if o.Virtual {
		b.storage = withSimultaneousEvents(b.storage)
	}
	if b.pki, err = ensurePKI(ctx, o, store); err != nil {
		return b, err
	}
	b.ends("keys", b.pki.Close)
	if b.client, err = kubernetes.NewForConfig(b.loopback.Config()); err != nil {
		return b, err
	}
	slimmer := &podSlimmer{whole: o.Scheduler != nil || controllers.Selects(o.Controllers, o.OtherControllers)}
	transform := slimmer.transform
	if o.isolated() {
		transform = func(object any) (any, error) {
			o.withoutCalls(object)
			return slimmer.transform(object)
		}
	}
	b.informerName, _ = cache.NewInformerName("kube-apiserver") // fails only if it is taken
	b.ends("informers' name", func() error { b.informerName.Release(); return nil })
	b.feed = informer.NewFeed(store)
	b.informers = informer.NewFactory(informers.NewSharedInformerFactoryWithOptions(b.client, 0, informers.WithInformerName(b.informerName)), b.feed, transform)
	return b, nil
}

// newLoopback returns the transport of in-process clients. The watches of a virtual server last, without bookmarks.
func newLoopback(o *Options) *loopback.Transport {
	ctx := context.Background()
	if o.Virtual {
		ctx = apistorage.WithBookmarkInterval(ctx, virtualInterval)
	}
	made := loopback.New(ctx)
	made.WatchTimeout = o.seldom()
	made.Join = sqlstore.Joining // what admission looks up for a write in a transaction is as the transaction sees it
	return made
}

// ensurePKI creates the server's keys and certificates, or reads existing ones.
func ensurePKI(ctx context.Context, o *Options, store *sqlstore.Store) (*pki.PKI, error) {
	serviceIP, err := netutils.GetIndexedIP(&o.serviceRange, 1)
	if err != nil {
		return nil, fmt.Errorf("--service-cluster-ip-range %s has no usable address: %w", o.ServiceClusterIPRange, err)
	}
	var shared pki.SharedStore
	sealer := o.sealer
	if o.Hosted != nil {
		sealer = o.Hosted.Sealer
	}
	if !o.InMemory { // a copy in memory has keys of its own
		if shared, err = sharedkeys.Open(ctx, store, sealer); err != nil {
			return nil, err
		}
	}
	names := o.TLSNames
	if o.AdvertiseAddress != nil {
		names = slices.Concat(names, []string{o.AdvertiseAddress.String()})
	}
	options := pki.Options{
		BindAddress: o.Serving.BindAddress, ServiceIP: serviceIP, InMemory: o.filesInMemory(),
		ServingCertFile: o.Serving.ServerCert.CertKey.CertFile, ExtraNames: names, SharedStore: shared,
	}
	if o.Hosted != nil {
		options.ServerCA = o.Hosted.CA
	} else {
		options.Server = o.URL() // the administrator's kubeconfig is for it
	}
	if !o.KeysVary && o.Hosted == nil {
		keys := o.Access.ClusterKeys(filepath.Join(o.DataDir, "pki"))
		options.Guard = &sharedkeys.Guard{Store: store, Keys: keys, Replace: o.ReplaceKeys}
	}
	return pki.Ensure(ctx, o.DataDir, options)
}
