package apistorage

import (
	"encoding/json"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/sqlstore"
)

// HeartbeatResource is what heartbeats are written to.
var HeartbeatResource = sqlstore.Resource{Group: coordinationv1.GroupName, Name: "leases"}

// serverLabel is among the labels of the Leases that API servers renew for an hour, every ten minutes.
const serverLabel = `"apiserver.kubernetes.io/identity":"kube-apiserver"`

// isHeartbeat reports whether a write says nothing but that a node or an API server still runs: it changes nothing but the times of its
// Lease. If it is lost, the node has missed a renewal; the next one is 10 seconds later. Other Leases are not heartbeats: a
// candidate that finds an old time in one may become the leader.
func isHeartbeat(w *sqlstore.Write) bool {
	if w.Resource != HeartbeatResource || w.Previous == nil {
		return false
	}
	node, server := strings.HasPrefix(w.Key, corev1.NamespaceNodeLease+"/"), strings.HasPrefix(w.Key, metav1.NamespaceSystem+"/apiserver-")
	if !node && !(server && strings.Contains(w.Labels, serverLabel)) {
		return false
	}
	before, after := withoutTimes(w.Previous.Value), withoutTimes(w.Value)
	return before != nil && after != nil && equality.Semantic.DeepEqual(before, after)
}

// withoutTimes decodes a Lease, except for the times in it. It returns nil if that is not possible, as with an encrypted one.
func withoutTimes(value []byte) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	if json.Unmarshal(value, lease) != nil {
		return nil
	}
	lease.Spec.RenewTime = nil
	for i := range lease.ManagedFields {
		lease.ManagedFields[i].Time = nil
	}
	return lease
}
