package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// cluster has the clients of a server with a control plane: an administrator and simulated nodes.
type cluster struct {
	kubernetes.Interface // of the administrator
	calls                callTimes
	ledger               ledger
	starts               *podStarts

	// So far:
	joined, namespaces, deployed int
	churned                      int // operations on Deployments

	background context.Context // of the nodes and the watch
	stop       context.CancelFunc
	nodes      sync.WaitGroup
}

// openCluster creates the clients. If there are several servers, a client fails over when its own is gone.
func (s *session) openCluster(ctx context.Context) error {
	klog.SetLogger(logr.Discard()) // clients retry; final failures are recorded
	admin, err := s.adminClient()
	if err != nil {
		return err
	}
	c := &cluster{Interface: admin}
	c.background, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.cluster = c
	watcher, err := s.node(0, s.dialer.config.BearerToken).dial(ctx)
	if err != nil {
		return err
	}
	c.starts, err = watchStarts(c.background, watcher)
	return err
}

// adminClient returns the administrator's client.
func (s *session) adminClient() (kubernetes.Interface, error) {
	config := rest.CopyConfig(s.dialer.config)
	config.QPS = -1
	config.ContentType, config.AcceptContentTypes = mediaProtobuf, mediaProtobuf+","+mediaJSON
	config.Dial = failover(s.server.Addresses, s.dialer.received)
	return kubernetes.NewForConfig(config)
}

// node returns the dialer of a numbered node with that token, which prefers one of the servers.
func (s *session) node(number int, token string) *dialer {
	addresses := s.server.Addresses
	first := number % len(addresses)
	return s.dialer.as(token, slices.Concat(addresses[first:], addresses[:first]))
}

// failover returns a dial function that tries the addresses in order. What its connections receive is added to received.
func failover(addresses []string, received *atomic.Int64) func(ctx context.Context, network, _ string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		var dialer net.Dialer
		for _, address := range addresses {
			if conn, err = dialer.DialContext(ctx, network, address); err == nil {
				return countedConn{conn, received}, nil
			}
		}
		return nil, err
	}
}

// countedConn counts the bytes that it receives.
type countedConn struct {
	net.Conn
	received *atomic.Int64
}

// Read reads from the connection.
func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// joinClients is how many nodes register at once.
const joinClients = 8

// join adds nodes until there are that many, and waits until all are ready.
func (s *session) join(ctx context.Context, nodes int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var joining sync.WaitGroup
	for range joinClients {
		joining.Go(func() {
			for i := range next {
				if err := s.joinNode(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for ; s.cluster.joined < nodes && ctx.Err() == nil; s.cluster.joined++ {
		next <- s.cluster.joined
	}
	close(next)
	joining.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return until(ctx, fmt.Sprintf("%d nodes are ready", nodes), func() (bool, error) {
		list, err := s.cluster.CoreV1().Nodes().List(ctx, listCached)
		if err != nil {
			return false, err
		}
		ready := 0
		for i := range list.Items {
			if isReady(&list.Items[i]) && len(list.Items[i].Spec.Taints) == 0 {
				ready++
			}
		}
		return ready == nodes, nil
	})
}

// joinNode adds a node.
func (s *session) joinNode(ctx context.Context, i int) error {
	token := s.dialer.config.BearerToken
	if s.server.access.nodes > 0 {
		token = s.server.access.nodeToken(i)
	}
	c, err := s.node(i, token).dial(ctx)
	if err != nil {
		return err
	}
	k := &kubelet{client: c, name: nodeName(i), calls: &s.cluster.calls, ledger: &s.cluster.ledger, running: map[string]struct{}{}}
	if err := k.register(ctx); err != nil {
		return fmt.Errorf("registering Node %s: %w", k.name, err)
	}
	s.cluster.nodes.Go(func() { k.run(s.cluster.background) })
	return nil
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// close stops the nodes and the watch, and waits for their end. Closing twice is harmless.
func (c *cluster) close() {
	if c != nil {
		c.stop()
		c.nodes.Wait()
		c.starts.stopped()
	}
}
