package servertest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/simnodes"
)

// unwatchedLease is how often nodes in a bubble renew their Leases if no controller looks at that.
const unwatchedLease = 24 * time.Hour

// Nodes adds simulated nodes, which run Pods as the options' scripts say, until the test ends. Without Options.ControlPlane, only Pods with
// a spec.nodeName run.
func (s *Server) Nodes(t testing.TB, o simnodes.Options) *simnodes.Nodes {
	t.Helper()
	if o.Failed == nil {
		o.Failed = func(err error) { t.Log(err) }
	}
	nodes, err := s.Join(t.Context(), o)
	if err != nil {
		t.Fatalf("simulate nodes: %v", err)
	}
	t.Cleanup(nodes.Stop)
	return nodes
}

// Join is Nodes for a server that is not of one test. The nodes run until they are stopped.
func (s *Server) Join(ctx context.Context, o simnodes.Options) (*simnodes.Nodes, error) {
	if o.Listen == nil {
		o.Listen = s.Listen
	}
	config := s.Config
	if s.network != nil {
		config = s.Inside("kubernetes-admin", user.SystemPrivilegedGroup)
		lease := unwatchedLease
		if s.nodeGrace > 0 {
			lease = s.nodeGrace * 4 / 5 // there is no machine that may be busy
		}
		if o.As == nil {
			o.As = func(node string) *rest.Config { return s.Inside("system:node:"+node, user.SystemPrivilegedGroup) }
		}
		o.LeaseInterval, o.StatusInterval = cmp.Or(o.LeaseInterval, lease), cmp.Or(o.StatusInterval, unwatchedLease)
	}
	nodes, err := simnodes.Join(context.Background(), config, o)
	if err != nil {
		return nil, err
	}
	if s.nodeGrace == 0 {
		if err := s.admitPods(ctx); err != nil {
			nodes.Stop()
			return nil, fmt.Errorf("let Pods be scheduled to the nodes: %w", err)
		}
	}
	return nodes, nil
}

// admitPods removes the taint that new nodes have until a controller has seen that they are ready.
func (s *Server) admitPods(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == corev1.TaintNodeNotReady
		})}})
		if err != nil {
			return err
		}
		if _, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}
