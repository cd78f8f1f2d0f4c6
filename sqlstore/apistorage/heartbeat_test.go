package apistorage

import (
	"testing"

	"github.com/sqube/sqube/sqlstore"
)

// TestIsHeartbeat checks that only times of a node's or a server's Lease may change in a heartbeat.
func TestIsHeartbeat(t *testing.T) {
	const before = `{"kind":"Lease","metadata":{"name":"n","managedFields":[{"manager":"kubelet","time":"2026-01-01T00:00:00Z"}]},"spec":{"holderIdentity":"n","renewTime":"2026-01-01T00:00:00.000000Z"}}`
	leases := sqlstore.Resource{Group: "coordination.k8s.io", Name: "leases"}
	for _, test := range []struct {
		what, key string
		resource  sqlstore.Resource
		value     string
		labels    string
		want      bool
	}{
		{"a renewal", "kube-node-lease/n", leases, `{"kind":"Lease","metadata":{"name":"n","managedFields":[{"manager":"kubelet","time":"2026-01-01T00:00:10Z"}]},"spec":{"holderIdentity":"n","renewTime":"2026-01-01T00:00:10.000000Z"}}`, `{}`, true},
		{"another holder", "kube-node-lease/n", leases, `{"kind":"Lease","metadata":{"name":"n","managedFields":[{"manager":"kubelet","time":"2026-01-01T00:00:10Z"}]},"spec":{"holderIdentity":"m","renewTime":"2026-01-01T00:00:10.000000Z"}}`, `{}`, false},
		{"an annotation", "kube-node-lease/n", leases, `{"kind":"Lease","metadata":{"name":"n","annotations":{"time":"1"},"managedFields":[{"manager":"kubelet","time":"2026-01-01T00:00:10Z"}]},"spec":{"holderIdentity":"n","renewTime":"2026-01-01T00:00:10.000000Z"}}`, `{}`, false},
		{"a server's renewal", "kube-system/apiserver-1", leases, before, `{"apiserver.kubernetes.io/identity":"kube-apiserver","kubernetes.io/hostname":"m"}`, true},
		{"a leader's renewal with such a name", "kube-system/apiserver-1", leases, before, `{}`, false},
		{"a leader's renewal with such a label", "kube-system/n", leases, before, `{"apiserver.kubernetes.io/identity":"kube-apiserver"}`, false},
		{"a leader's renewal", "kube-system/n", leases, before, `{}`, false},
		{"another resource", "kube-node-lease/n", sqlstore.Resource{Name: "leases"}, before, `{}`, false},
		{"an encrypted Lease", "kube-node-lease/n", leases, "k8s:enc:", `{}`, false},
	} {
		w := &sqlstore.Write{Resource: test.resource, Key: test.key, Labels: test.labels, Value: []byte(test.value), Previous: &sqlstore.Record{Key: test.key, Value: []byte(before)}}
		if got := isHeartbeat(w); got != test.want {
			t.Errorf("%s is a heartbeat: %t", test.what, got)
		}
		if w.Previous = nil; isHeartbeat(w) {
			t.Errorf("%s creates the object, and is a heartbeat", test.what)
		}
	}
}
