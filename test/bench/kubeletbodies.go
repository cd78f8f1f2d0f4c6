package main

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// nodeLeases is the collection of the nodes' Leases.
const nodeLeases = "/apis/coordination.k8s.io/v1/namespaces/" + corev1.NamespaceNodeLease + "/leases"

// nodeBody is a new Node.
func nodeBody(name string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"labels":{"kubernetes.io/os":"linux","kubernetes.io/hostname":%[1]q}}}`, name)
}

// nodeStatus is the patch of a Node that is ready.
func nodeStatus(at time.Time) []byte {
	now := at.UTC().Format(time.RFC3339)
	conditions := make([]string, 0, 4)
	for _, c := range [][4]string{
		{"MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		{"DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		{"PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
		{"Ready", "True", "KubeletReady", "kubelet is posting ready status"},
	} {
		conditions = append(conditions, fmt.Sprintf(`{"type":%q,"status":%q,"reason":%q,"message":%q,"lastHeartbeatTime":%q}`, c[0], c[1], c[2], c[3], now))
	}
	const room = `{"cpu":"32","memory":"64Gi","pods":"110"}`
	return fmt.Appendf(nil, `{"status":{"capacity":%s,"allocatable":%[1]s,"conditions":[%s]}}`, room, strings.Join(conditions, ","))
}

// leaseBody is a node's Lease in protobuf, renewed at that time.
func leaseBody(name, version string, at time.Time) ([]byte, error) {
	now := metav1.NewMicroTime(at)
	lease := coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease, ResourceVersion: version},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](kubeletLeaseSeconds), RenewTime: &now},
	}
	raw, err := lease.Marshal()
	if err != nil {
		return nil, err
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, Raw: raw}
	body, err := unknown.Marshal()
	return append([]byte(protobufMagic), body...), err
}

// versionIn returns the resourceVersion of the object in an answer in protobuf.
func versionIn(answer []byte) string { return string(field(objectIn(answer), 1, 6)) }

// podStatus is the patch of a Pod's status when its containers have started.
func podStatus(uid string, at time.Time) []byte {
	now := at.UTC().Format(time.RFC3339)
	conditions := make([]string, 0, 4)
	for _, name := range []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"} {
		conditions = append(conditions, fmt.Sprintf(`{"type":%q,"status":"True","lastTransitionTime":%q}`, name, now))
	}
	return fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"phase":"Running","startTime":%q,"hostIP":"192.0.2.1","hostIPs":[{"ip":"192.0.2.1"}],`+
		`"podIP":%q,"podIPs":[{"ip":%[3]q}],"conditions":[%s],"containerStatuses":[{"name":"server","image":%q,"imageID":"sha256:%064x",`+
		`"containerID":"containerd://%[6]064x","ready":true,"started":true,"restartCount":0,"lastState":{},"state":{"running":{"startedAt":%[2]q}}}]}}`,
		uid, now, podIP(uid), strings.Join(conditions, ","), podImage, 0x5eed)
}

// podIP returns an address in 10.0.0.0/8, always the same for a uid.
func podIP(uid string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid)) // never fails
	sum := hash.Sum32()
	return netip.AddrFrom4([4]byte{10, byte(sum >> 16), byte(sum >> 8), byte(sum)}).String()
}

// deleteBody are the options of a kubelet that removes a Pod whose containers have ended.
func deleteBody(uid string) []byte {
	return fmt.Appendf(nil, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":%q}}`, uid)
}
