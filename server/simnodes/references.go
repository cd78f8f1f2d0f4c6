package simnodes

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reference is what a Pod needs of a Secret or ConfigMap.
type reference struct {
	secret    bool
	name, key string // no key: all of it
	container string // whose environment it is for
	volume    string // that it is mounted as
}

// kind is "secret" or "configmap".
func (r *reference) kind() string {
	if r.secret {
		return "secret"
	}
	return "configmap"
}

// referencesOf returns what a Pod can't start without.
func referencesOf(pod *corev1.Pod) (all []reference) {
	add := func(optional *bool, r reference) {
		if r.name != "" && (optional == nil || !*optional) {
			all = append(all, r)
		}
	}
	items := func(optional *bool, r reference, paths []corev1.KeyToPath) {
		add(optional, r)
		for _, path := range paths {
			r.key = path.Key
			add(optional, r)
		}
	}
	for _, v := range pod.Spec.Volumes {
		if s := v.Secret; s != nil {
			items(s.Optional, reference{secret: true, name: s.SecretName, volume: v.Name}, s.Items)
		}
		if m := v.ConfigMap; m != nil {
			items(m.Optional, reference{name: m.Name, volume: v.Name}, m.Items)
		}
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if s := source.Secret; s != nil {
				items(s.Optional, reference{secret: true, name: s.Name, volume: v.Name}, s.Items)
			}
			if m := source.ConfigMap; m != nil {
				items(m.Optional, reference{name: m.Name, volume: v.Name}, m.Items)
			}
		}
	}
	environment := func(c *corev1.Container) {
		for _, from := range c.EnvFrom {
			if s := from.SecretRef; s != nil {
				add(s.Optional, reference{secret: true, name: s.Name, container: c.Name})
			}
			if m := from.ConfigMapRef; m != nil {
				add(m.Optional, reference{name: m.Name, container: c.Name})
			}
		}
		for _, variable := range c.Env {
			if from := variable.ValueFrom; from != nil && from.SecretKeyRef != nil {
				add(from.SecretKeyRef.Optional, reference{secret: true, name: from.SecretKeyRef.Name, key: from.SecretKeyRef.Key, container: c.Name})
			} else if from != nil && from.ConfigMapKeyRef != nil {
				add(from.ConfigMapKeyRef.Optional, reference{name: from.ConfigMapKeyRef.Name, key: from.ConfigMapKeyRef.Key, container: c.Name})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		environment(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		environment(&pod.Spec.Containers[i])
	}
	return all
}

// keysOf returns the keys of a Secret or ConfigMap, or nil if there is none of that name.
func (n *Nodes) keysOf(namespace string, r *reference) (keys map[string]bool, err error) {
	keys = map[string]bool{}
	if r.secret {
		secret, err := n.client.CoreV1().Secrets(namespace).Get(n.ctx, r.name, metav1.GetOptions{})
		if err != nil {
			return nil, ignoreNotFound(err)
		}
		for key := range secret.Data {
			keys[key] = true
		}
		return keys, nil
	}
	m, err := n.client.CoreV1().ConfigMaps(namespace).Get(n.ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return nil, ignoreNotFound(err)
	}
	for key := range m.Data {
		keys[key] = true
	}
	for key := range m.BinaryData {
		keys[key] = true
	}
	return keys, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// lacks is what does not exist of what a Pod needs, in a kubelet's words.
type lacks struct {
	mount      string            // why its volumes can't be mounted
	containers map[string]string // why a container can't be created
}

// lacksOf returns what a Pod needs and does not find, as far as the copy has all Secrets and ConfigMaps.
func (n *Nodes) lacksOf(pod *corev1.Pod) (l lacks, err error) {
	l.containers = map[string]string{}
	found := map[string]map[string]bool{}
	for _, r := range referencesOf(pod) {
		if !n.whole[r.kind()] {
			continue
		}
		id := r.kind() + "/" + r.name
		keys, known := found[id]
		if !known {
			if keys, err = n.keysOf(pod.Namespace, &r); err != nil {
				return l, err
			}
			found[id] = keys
		}
		var message string
		switch {
		case keys == nil:
			message = fmt.Sprintf("%s %q not found", r.kind(), r.name)
		case r.key == "" || keys[r.key]:
			continue
		case r.volume != "" && r.secret:
			message = "references non-existent secret key: " + r.key
		case r.volume != "":
			message = "references non-existent config key: " + r.key
		case r.secret:
			message = fmt.Sprintf("couldn't find key %s in Secret %s/%s", r.key, pod.Namespace, r.name)
		default:
			message = fmt.Sprintf("couldn't find key %s in ConfigMap %s/%s", r.key, pod.Namespace, r.name)
		}
		if r.volume != "" && l.mount == "" {
			l.mount = fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", r.volume, message)
		} else if r.volume == "" && l.containers[r.container] == "" {
			l.containers[r.container] = message
		}
	}
	if l.mount != "" {
		l.containers = nil // none is created before
	}
	return l, nil
}

// sampled is of how many Secrets and ConfigMaps that running Pods use it is checked whether they exist.
const sampled = 20

// wholeOf returns whether the copy has the Secrets, and the ConfigMaps. It lacks those that whoever has made it can't read: most of those that running
// Pods use are then missing.
func (n *Nodes) wholeOf(pods []any) (map[string]bool, error) {
	seen, used, there := map[string]bool{}, map[string]int{}, map[string]int{}
	for _, object := range pods {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, r := range referencesOf(pod) {
			id := r.kind() + " " + pod.Namespace + "/" + r.name
			if seen[id] || used[r.kind()] == sampled {
				continue
			}
			seen[id] = true
			keys, err := n.keysOf(pod.Namespace, &r)
			if err != nil {
				return nil, err
			}
			if used[r.kind()]++; keys != nil {
				there[r.kind()]++
			}
		}
	}
	whole := map[string]bool{}
	for _, kind := range []string{"secret", "configmap"} {
		if whole[kind] = 2*there[kind] >= used[kind]; used[kind] > 0 {
			continue
		}
		secrets, err := n.client.CoreV1().Secrets("").List(n.ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return nil, err
		}
		whole[kind] = kind != "secret" || len(secrets.Items) > 0
	}
	return whole, nil
}

// How long a kubelet waits until it looks again for what a Pod lacks.
const (
	lookFirst   = 10 * time.Second
	lookLongest = 2 * time.Minute
)

// look finds out what a Pod lacks that can't start yet, if it is time.
func (n *Nodes) look(node *node, pod *corev1.Pod, state *podState, now time.Time) error {
	l := state.life
	if !l.waits() || now.Before(l.nextLook) {
		return nil
	}
	lacking, err := n.lacksOf(pod)
	if err != nil {
		return err
	}
	state.mu.Lock()
	told := l.lacks
	l.find(lacking, now)
	state.mu.Unlock()
	if !l.waits() {
		return nil
	}
	l.lookAfter = min(max(2*l.lookAfter, lookFirst), lookLongest)
	l.nextLook = now.Add(l.lookAfter)
	if lacking.mount != "" && lacking.mount != told.mount {
		return n.tell(node, pod, "FailedMount", lacking.mount, now)
	}
	for name, message := range lacking.containers {
		if message != told.containers[name] {
			return n.tell(node, pod, "Failed", "Error: "+message, now)
		}
	}
	return nil
}

// tell creates a warning about a Pod, as its kubelet.
func (n *Nodes) tell(node *node, pod *corev1.Pod, reason, message string, now time.Time) error {
	at := metav1.NewTime(now)
	_, err := node.client.CoreV1().Events(pod.Namespace).Create(n.ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: pod.Name + "."}, // in a bubble, others have names of the same time
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Type:           corev1.EventTypeWarning, Reason: reason, Message: message, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		Source: corev1.EventSource{Component: "kubelet", Host: node.name}, ReportingController: "kubelet", ReportingInstance: node.name,
	}, metav1.CreateOptions{})
	return err
}

// waits reports whether the Pod can't start before its node has looked, or looks again.
func (l *life) waits() bool {
	if l.stopping {
		return false
	}
	if l.unknown || l.lacks.mount != "" {
		return true
	}
	for _, c := range l.containers {
		if c.held {
			return true
		}
	}
	return false
}

// find says what the Pod lacks, and lets everything begin that lacks nothing.
func (l *life) find(lacking lacks, at time.Time) {
	l.unknown, l.lacks = false, lacking
	for _, c := range l.containers {
		message := lacking.containers[c.spec.Name]
		switch {
		case c.begun:
		case message != "" && (!c.held || c.state.Waiting == nil || c.state.Waiting.Message != message):
			c.held, c.kept = true, nil
			c.wait("CreateContainerConfigError", message)
		case message == "" && c.held:
			c.held, c.kept = false, nil
			c.wait("ContainerCreating", "")
		}
	}
	l.settle(at)
}
