package simnodes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// podState is what a node knows about a Pod.
type podState struct {
	mu       sync.Mutex // for life and timer
	life     *life
	timer    *time.Timer
	ip       string      // if the server knows none
	written  *corev1.Pod // the last answer, until the watch has it
	failures int
}

// byAddress is the index of Pods by their addresses.
const byAddress = "address"

func addressesOf(object any) ([]string, error) {
	if pod, ok := object.(*corev1.Pod); ok && pod.Status.PodIP != "" {
		return []string{pod.Status.PodIP}, nil
	}
	return nil, nil
}

func (n *Nodes) enqueuePod(object any) {
	// It only fails for objects without names.
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		n.queue.Add(key{name: name})
	}
}

// syncPod does what is due for a Pod, and reports it.
func (n *Nodes) syncPod(k key) {
	pod, state := n.lookUp(k.name)
	if pod == nil || n.ctx.Err() != nil {
		return
	}
	next, more, err := n.syncState(pod, state)
	now := time.Now()
	if state.failures++; err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // an event will follow
		state.failures = 0
	} else {
		retry := now.Add(n.retry(state.failures, fmt.Errorf("Pod %s on Node %s: %w", k.name, pod.Spec.NodeName, err)))
		if !more || retry.Before(next) {
			next, more = retry, true
		}
	}
	state.mu.Lock()
	defer state.mu.Unlock()
	if stopTimer(state.timer); more && n.ctx.Err() == nil {
		state.timer = time.AfterFunc(next.Sub(now), func() { n.queue.Add(k) })
	}
}

// lookUp returns a Pod of a node that is not silent, and its state. Otherwise the Pod is nil.
func (n *Nodes) lookUp(name string) (*corev1.Pod, *podState) {
	object, ok, err := n.pods.GetByKey(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	pod, _ := object.(*corev1.Pod)
	state := n.lives[name]
	if state != nil && (err != nil || !ok || pod.UID != state.life.pod.UID) {
		n.forget(name, state)
		state = nil
	}
	if err != nil || !ok {
		return nil, nil
	}
	node := n.nodes[pod.Spec.NodeName]
	if node == nil || node.silent {
		return nil, nil
	}
	if state == nil {
		state = &podState{ip: pod.Status.PodIP}
		if state.ip == "" && pod.Spec.HostNetwork {
			state.ip = node.ip
		} else if state.ip == "" {
			state.ip = n.newAddress()
		}
		state.life = newLife(pod, time.Now(), func(container string, init bool) (runs []Run, stop Run) {
			for _, script := range n.scripts {
				if script.selects(pod, container, init) {
					return script.Runs, script.Stop
				}
			}
			return annotated(pod, container, init)
		}, n.habits(pod))
		n.lives[name] = state
	}
	return pod, state
}

// forget ends what is left of a Pod that does not exist any more.
func (n *Nodes) forget(name string, state *podState) {
	state.mu.Lock()
	defer state.mu.Unlock()
	stopTimer(state.timer)
	for _, c := range state.life.containers {
		c.log.end()
	}
	delete(n.lives, name)
}

// newAddress returns an address in 10.0.0.0/8 that no Pod has, as far as the nodes know. Other sets of nodes begin elsewhere.
func (n *Nodes) newAddress() string {
	for {
		n.addresses++
		i := hashOf(strings.Join(n.options.Names[:min(1, len(n.options.Names))], ""))<<8 + n.addresses
		address := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String()
		if taken, err := n.pods.ByIndex(byAddress, address); err == nil && len(taken) == 0 {
			return address
		}
	}
}

// syncState advances the life of a Pod, reports its status if that has changed, and removes the Pod if it is deleted and over. It
// returns when something happens next.
func (n *Nodes) syncState(pod *corev1.Pod, state *podState) (next time.Time, more bool, err error) {
	if written := state.written; written != nil {
		if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, written.ResourceVersion); err == nil && order < 0 {
			pod = written
		} else {
			state.written = nil
		}
	}
	now := time.Now()
	node, _ := n.get(pod.Spec.NodeName)
	if node == nil {
		return next, more, nil
	}
	l := state.life
	if pod.DeletionTimestamp == nil {
		if err := n.look(node, pod, state, now); err != nil {
			return next, more, err
		}
	}
	state.mu.Lock()
	l.pod = pod
	next, more = l.advance(now)
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	grace := pod.DeletionGracePeriodSeconds // nil unless it is deleted
	if grace != nil {
		l.terminate(now, time.Duration(*grace)*time.Second)
		next, more = l.advance(now)
	} else if ended { // somebody else has said so
		l.terminate(now, l.grace())
		next, more = l.advance(now)
	}
	status, over := l.status(pod.Status, now), l.over
	state.mu.Unlock()

	if l.waits() && (!more || l.nextLook.Before(next)) {
		next, more = l.nextLook, true
	}
	if pod.Status.PodIP == "" || !n.options.Keep {
		status.HostIP, status.PodIP = node.ip, state.ip
		status.HostIPs, status.PodIPs = []corev1.HostIP{{IP: status.HostIP}}, []corev1.PodIP{{IP: status.PodIP}}
	}
	if !ended && !equality.Semantic.DeepEqual(status, pod.Status) {
		if state.written, err = patchStatus(n.ctx, node.client, pod, status); err != nil {
			return next, more, err
		}
	}
	if over && grace != nil && *grace > 0 { // otherwise only finalizers keep it
		err = node.client.CoreV1().Pods(pod.Namespace).Delete(n.ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	}
	return next, more, err
}

// patchStatus sends what has changed in the status of a Pod.
func patchStatus(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, status corev1.PodStatus) (*corev1.Pod, error) {
	before, err := json.Marshal(corev1.Pod{Status: pod.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: status}) // not of another Pod of the name
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	return client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}
