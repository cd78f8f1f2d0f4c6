package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// podSlimmer reduces the pods that the shared informers hold. Pods are most of a cluster's objects, and their readers here
// (Node authorizer, NodeRestriction, PodSecurity, quota, the protection of claims, the garbage collector) read only some of
// their fields. It drops fields that none of them reads, and shares what the pods of a Deployment have in common.
type podSlimmer struct {
	// whole keeps all fields of pods, for controllers and a scheduler in this process, which read all of them. Most fields are
	// still shared.
	whole     bool
	mu        sync.Mutex
	buffer    []byte
	templates map[[sha256.Size]byte]*corev1.PodSpec
	size      int // of the templates' messages, in bytes
}

// maxTemplates limits the templates that are kept for sharing, in bytes of their messages.
const maxTemplates = 4 << 20

// transform drops fields that no user of the informers reads: the managed fields of any object, and more of a pod.
func (s *podSlimmer) transform(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		if s.whole {
			s.share(&pod.Spec)
		} else {
			s.slim(pod)
		}
	}
	return obj, nil
}

// slim drops and shares fields of the pod, which nothing else refers to yet. Shared fields must not be changed afterwards.
func (s *podSlimmer) slim(pod *corev1.Pod) {
	if pod.Spec.SchedulerName == "" { // set on every pod that has not been slimmed
		return
	}
	pod.Labels, pod.Annotations = nil, readAnnotations(pod.Annotations)
	spec := &pod.Spec
	spec.NodeSelector, spec.Tolerations, spec.HostAliases = nil, nil, nil
	spec.DNSConfig, spec.ReadinessGates, spec.TopologySpreadConstraints = nil, nil, nil
	spec.Hostname, spec.Subdomain, spec.SchedulerName, spec.DeprecatedServiceAccount = "", "", "", ""
	spec.DNSPolicy, spec.EnableServiceLinks, spec.PreemptionPolicy, spec.Priority = "", nil, nil, nil
	for i := range spec.Containers {
		slimContainer(&spec.Containers[i])
	}
	for i := range spec.InitContainers {
		slimContainer(&spec.InitContainers[i])
	}
	s.share(spec)

	status := &pod.Status
	status.HostIP, status.HostIPs, status.PodIP, status.PodIPs = "", nil, "", nil
	status.StartTime, status.Message, status.NominatedNodeName = nil, "", ""
	status.Conditions = resizeConditions(status.Conditions)
	for _, statuses := range [][]corev1.ContainerStatus{
		status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			slimContainerStatus(&statuses[i])
		}
	}
}

// readAnnotations returns the annotations that PodSecurity and the Node authorizer read.
func readAnnotations(all map[string]string) map[string]string {
	var kept map[string]string
	for key, value := range all {
		if key == corev1.MirrorPodAnnotationKey || key == corev1.SeccompPodAnnotationKey ||
			strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix) ||
			strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

func slimContainer(c *corev1.Container) {
	c.Image, c.ImagePullPolicy, c.Command, c.Args, c.WorkingDir = "", "", nil, nil, ""
	c.VolumeMounts, c.VolumeDevices = nil, nil
	c.TerminationMessagePath, c.TerminationMessagePolicy = "", ""
	c.Env = slices.DeleteFunc(c.Env, func(v corev1.EnvVar) bool { return v.ValueFrom == nil }) // but references to Secrets
}

// resizeConditions returns the conditions that quota reads to detect a resize in progress.
func resizeConditions(all []corev1.PodCondition) []corev1.PodCondition {
	var kept []corev1.PodCondition
	for _, condition := range all {
		if condition.Type == corev1.PodResizePending || condition.Type == corev1.PodResizeInProgress {
			kept = append(kept, condition)
		}
	}
	return kept
}

// States of a container without their details.
var (
	running    = &corev1.ContainerStateRunning{}
	waiting    = &corev1.ContainerStateWaiting{}
	terminated = &corev1.ContainerStateTerminated{}
)

func slimContainerStatus(s *corev1.ContainerStatus) {
	s.LastTerminationState = corev1.ContainerState{}
	s.Image, s.ImageID, s.ContainerID, s.VolumeMounts, s.User = "", "", "", nil, nil
	if s.State.Running != nil {
		s.State.Running = running
	}
	if s.State.Waiting != nil {
		s.State.Waiting = waiting
	}
	if s.State.Terminated != nil {
		s.State.Terminated = terminated
	}
}

// share replaces the fields that pods of one template have in common by those of the first such pod. Each pod keeps its own
// volume mounts, since admission generates the name of one volume.
func (s *podSlimmer) share(spec *corev1.PodSpec) {
	mounts, initMounts := detachMounts(spec.Containers), detachMounts(spec.InitContainers)
	template := &corev1.PodSpec{
		Containers: spec.Containers, InitContainers: spec.InitContainers, ImagePullSecrets: spec.ImagePullSecrets,
		SecurityContext: spec.SecurityContext, Affinity: spec.Affinity, Overhead: spec.Overhead, Resources: spec.Resources,
		Tolerations: spec.Tolerations, NodeSelector: spec.NodeSelector, TopologySpreadConstraints: spec.TopologySpreadConstraints,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	template = s.shared(template)
	spec.Containers, spec.InitContainers = withMounts(template.Containers, mounts), withMounts(template.InitContainers, initMounts)
	spec.ImagePullSecrets, spec.SecurityContext, spec.Affinity = template.ImagePullSecrets, template.SecurityContext, template.Affinity
	spec.Overhead, spec.Resources, spec.Tolerations = template.Overhead, template.Resources, template.Tolerations
	spec.NodeSelector, spec.TopologySpreadConstraints = template.NodeSelector, template.TopologySpreadConstraints
	for i := range spec.Volumes {
		if source := &spec.Volumes[i].VolumeSource; source.Projected != nil { // the service account's token, in almost every pod
			source.Projected = s.shared(&corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: *source}}}).Volumes[0].Projected
		}
	}
}

// detachMounts takes the volume mounts out of containers and returns those of each, or nil if there are none.
func detachMounts(containers []corev1.Container) (mounts [][]corev1.VolumeMount) {
	for i := range containers {
		if c := &containers[i]; c.VolumeMounts != nil {
			if mounts == nil {
				mounts = make([][]corev1.VolumeMount, len(containers))
			}
			mounts[i], c.VolumeMounts = c.VolumeMounts, nil
		}
	}
	return mounts
}

// withMounts returns containers with the volume mounts of each, or the same containers if there are none.
func withMounts(containers []corev1.Container, mounts [][]corev1.VolumeMount) []corev1.Container {
	if mounts == nil {
		return containers
	}
	own := slices.Clone(containers)
	for i := range own {
		own[i].VolumeMounts = mounts[i]
	}
	return own
}

// shared returns the first template with the same content. s.mu is held.
func (s *podSlimmer) shared(template *corev1.PodSpec) *corev1.PodSpec {
	size := template.Size()
	if size > maxTemplates {
		return template
	}
	if cap(s.buffer) < size {
		s.buffer = make([]byte, size)
	}
	n, err := template.MarshalToSizedBuffer(s.buffer[:size])
	if err != nil {
		return template
	}
	sum := sha256.Sum256(s.buffer[size-n : size])
	if first, ok := s.templates[sum]; ok {
		return first
	}
	if s.templates == nil || s.size+size > maxTemplates {
		s.templates, s.size = map[[sha256.Size]byte]*corev1.PodSpec{}, 0
	}
	s.templates[sum] = template
	s.size += size
	return template
}

// startInformers starts the shared informers. It returns an error if one reads a kind that is not served: a feature gate can need an
// API that --runtime-config or --emulated-version turns off, and the server would never become ready.
func (s *Server) startInformers() error {
	s.informers.StartWithContext(s.phase.running)
	served := s.servedKinds()
	now := make(chan struct{})
	close(now)
	var missing, flags []string
	for kind := range s.informers.WaitForCacheSync(now) {
		kinds, _, err := scheme.Scheme.ObjectKinds(reflect.New(kind.Elem()).Interface().(runtime.Object))
		if err != nil {
			return err
		}
		if version := kinds[0].GroupVersion().String(); !served[kinds[0]] {
			missing, flags = append(missing, kinds[0].Kind+" of "+version), append(flags, version+"=true")
		}
	}
	if missing == nil {
		return nil
	}
	slices.Sort(missing)
	slices.Sort(flags)
	return fmt.Errorf("the server needs %s, which it does not serve: add --runtime-config=%s, with --emulated-version also --runtime-config-emulation-forward-compatible, or leave the feature gates off that need it",
		strings.Join(missing, ", "), strings.Join(slices.Compact(flags), ","))
}

// whileEmpty returns controllers.Config.Sleep.
func whileEmpty(b *base, a *apis) func(context.Context, schema.GroupVersionResource, func()) (func(), bool) {
	return func(ctx context.Context, resource schema.GroupVersionResource, wake func()) (func(), bool) {
		stored, ok := storedHere(b, a, resource)
		if !ok {
			return nil, false
		}
		return b.store.WhileEmpty(ctx, stored, wake)
	}
}

// servedKinds returns the kinds of the built-in resources that are served.
func (a *apis) servedKinds() map[schema.GroupVersionKind]bool {
	served := map[schema.GroupVersionKind]bool{}
	for _, group := range a.groups {
		for _, version := range group.Versions {
			for _, resource := range version.Resources {
				served[version.WithKind(resource.Object)] = true // events of both groups have the type of one
			}
		}
	}
	return served
}
