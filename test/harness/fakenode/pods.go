package fakenode

import (
	"context"
	"hash/fnv"
	"net/netip"
	"strconv"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	statusutil "k8s.io/kubernetes/pkg/util/pod"
)

// The annotations of a Pod and the image of its first container determine what happens to it. By default, it runs.
const (
	// ExitCode is the annotation of Pods whose containers exit at once with this code: "0" means success.
	ExitCode = "fakenode/exit-code"
	// ExitCodeAt, followed by an index of a Job, overrides ExitCode in the Pods of that index.
	ExitCodeAt = "fakenode/exit-code-at-"
	// MissingImage is an image that can't be pulled: Pods with it stay pending.
	MissingImage = "fakenode/missing"
)

// RunPods runs the Pods bound to the node of that name, like its kubelet, until the context ends. It watches them with a kubelet's field
// selector.
func RunPods(ctx context.Context, c kubernetes.Interface, o Options) {
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTweakListOptions(func(list *metav1.ListOptions) {
		list.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", o.Name).String()
	}))
	informer := factory.Core().V1().Pods().Informer()
	w := &podWorker{
		client: c, options: o, bound: informer.GetStore(), acknowledged: map[types.UID]string{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 10*time.Second)),
	}
	// It only fails for stopped informers and for objects without names.
	add := func(pod any) {
		if key, err := cache.MetaNamespaceKeyFunc(pod); err == nil {
			w.queue.Add(key)
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, pod any) { add(pod) },
		DeleteFunc: w.forget,
	})
	factory.Start(ctx.Done())
	var working sync.WaitGroup
	working.Go(func() {
		for w.next(ctx) {
		}
	})
	<-ctx.Done()
	w.queue.ShutDown()
	working.Wait()
	factory.Shutdown()
}

// podWorker reports the status of a node's Pods, one by one.
type podWorker struct {
	client  kubernetes.Interface
	options Options
	bound   cache.Store
	queue   workqueue.TypedRateLimitingInterface[string]

	mu           sync.Mutex
	acknowledged map[types.UID]string // resourceVersions of the reported statuses, which the watch may not have received yet
}

// next processes the next Pod, and returns false if the context has ended.
func (w *podWorker) next(ctx context.Context) bool {
	key, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(key)
	object, ok, err := w.bound.GetByKey(key)
	if err == nil && ok {
		err = w.report(ctx, object.(*corev1.Pod))
	}
	switch {
	case ctx.Err() != nil:
		return false
	case err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err): // an event will follow
		w.queue.Forget(key)
	default:
		if w.queue.NumRequeues(key) == attempts {
			w.options.failed("reporting the status of Pod %s on Node %s: %w", key, w.options.Name, err)
		}
		w.queue.AddRateLimited(key)
	}
	return true
}

func (w *podWorker) forget(object any) {
	if pod, ok := object.(*corev1.Pod); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.acknowledged, pod.UID)
	}
}

// stale reports whether the watch has not yet received what the node itself has written.
func (w *podWorker) stale(pod *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	acknowledged, ok := w.acknowledged[pod.UID]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, acknowledged)
	return err == nil && order < 0
}

// report acts like a kubelet: it reports that a Pod is running or has ended, and removes it when it is deleted.
func (w *podWorker) report(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return w.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || w.stale(pod) {
		return nil
	}
	status := observe(pod)
	if status.Phase == pod.Status.Phase && podutil.IsPodReadyConditionTrue(status) == podutil.IsPodReadyConditionTrue(pod.Status) && pod.Status.StartTime != nil {
		return nil
	}
	reported, _, _, err := statusutil.PatchPodStatus(ctx, w.client, pod.Namespace, pod.Name, pod.UID, pod.Status, status)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.acknowledged[pod.UID] = reported.ResourceVersion
	w.mu.Unlock()
	return nil
}

// observe returns the status of a Pod from its kubelet's view.
func observe(pod *corev1.Pod) corev1.PodStatus {
	status, now := *pod.Status.DeepCopy(), metav1.Now()
	if status.StartTime == nil {
		status.StartTime = &now
	}
	status.PodIP = podIP(pod.UID)
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	container := &pod.Spec.Containers[0]
	state := corev1.ContainerStatus{Name: container.Name, Image: container.Image}
	code, ends := exitCode(pod)
	switch {
	case container.Image == MissingImage:
		status.Phase = corev1.PodPending
		state.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image " + strconv.Quote(MissingImage)}
	case ends && code == 0:
		status.Phase = corev1.PodSucceeded
		state.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}
	case ends:
		status.Phase = corev1.PodFailed
		state.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", StartedAt: now, FinishedAt: now}
	default:
		status.Phase, state.Ready = corev1.PodRunning, true
		state.State.Running = &corev1.ContainerStateRunning{StartedAt: *status.StartTime}
	}
	status.ContainerStatuses = []corev1.ContainerStatus{state}
	ready := corev1.ConditionFalse
	if state.Ready {
		ready = corev1.ConditionTrue
	}
	for _, condition := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		podutil.UpdatePodCondition(&status, &corev1.PodCondition{Type: condition, Status: ready, LastTransitionTime: now})
	}
	return status
}

// podIP returns an address in 10.0.0.0/8, always the same for a uid.
func podIP(uid types.UID) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid)) // never fails
	sum := hash.Sum32()
	return netip.AddrFrom4([4]byte{10, byte(sum >> 16), byte(sum >> 8), byte(sum)}).String()
}

// exitCode returns the exit code in a Pod's annotations.
func exitCode(pod *corev1.Pod) (code int32, ends bool) {
	text, ends := pod.Annotations[ExitCodeAt+pod.Annotations[batchv1.JobCompletionIndexAnnotation]]
	if !ends {
		text, ends = pod.Annotations[ExitCode]
	}
	if !ends {
		return 0, false
	}
	parsed, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 1, true
	}
	return int32(parsed), true
}
