package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/test/harness/fakenode"
)

// cluster has the clients of a server with a control plane: an administrator and simulated nodes.
type cluster struct {
	kubernetes.Interface // of the administrator
	calls                callTimes
	ledger               ledger
	starts               *podStarts
	churned              int // operations on Deployments so far

	stop  context.CancelFunc
	nodes sync.WaitGroup
}

// openCluster creates the clients. If there are several servers, a client fails over when its own is gone.
func (s *session) openCluster(ctx context.Context) error {
	klog.SetLogger(logr.Discard()) // clients retry; their observers report final failures
	admin, err := s.clientFor(0, s.dialer.config.BearerToken, nil)
	if err != nil {
		return err
	}
	c := &cluster{Interface: admin}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	s.cluster = c
	if c.starts, err = watchStarts(background, admin); err != nil {
		return err
	}
	return nil
}

// clientFor returns a client that prefers the server of a number, whose calls are timed if calls is not nil.
func (s *session) clientFor(number int, token string, calls *callTimes) (kubernetes.Interface, error) {
	config := rest.CopyConfig(s.dialer.config)
	config.BearerToken, config.QPS = token, -1
	config.ContentType, config.AcceptContentTypes = mediaProtobuf, mediaProtobuf+","+mediaJSON
	if addresses := s.server.Addresses; len(addresses) > 1 {
		first := number % len(addresses)
		config.Dial = failover(slices.Concat(addresses[first:], addresses[:first]))
	} else {
		config.Dial = (&net.Dialer{}).DialContext // clients with their own dial function have their own connection
	}
	if calls != nil {
		config.Wrap(calls.wrap)
	}
	return kubernetes.NewForConfig(config)
}

// failover returns a dial function that tries the addresses in order.
func failover(addresses []string) func(ctx context.Context, network, _ string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		var dialer net.Dialer
		for _, address := range addresses {
			if conn, err = dialer.DialContext(ctx, network, address); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
}

// join adds nodes, which report their status at the given interval, and waits until all are ready.
func (s *session) join(ctx context.Context, nodes int, report time.Duration) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	before := s.cluster.stop
	s.cluster.stop = func() { stop(); before() }
	for i := range nodes {
		token := s.dialer.config.BearerToken
		if s.server.access.nodes > 0 {
			token = s.server.access.nodeToken(i)
		}
		client, err := s.clientFor(i, token, &s.cluster.calls)
		if err != nil {
			return err
		}
		node := fakenode.New(client, fakenode.Options{
			Name: nodeName(i), CPU: "32", Memory: "64Gi", ReportInterval: report, Observer: s.cluster.ledger.observer(),
		})
		if err := persist(ctx, func() error { return node.Register(ctx) }); err != nil {
			return err
		}
		s.cluster.nodes.Go(func() { node.Run(background) })
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
