package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

// Load is how much the Pods of a Deployment, StatefulSet or ReplicaSet have to do from the change on, in all.
type Load struct {
	Kind, Name string // in lower case
	Namespace  string
	// CPU is what they use, in cores. If it is zero, Factor says how much more than before they use.
	CPU    resource.Quantity
	Factor float64
}

// ParseLoad parses KIND/NAME=CPU or KIND/NAME=PERCENT%, such as deployment/web=4.5 and deployment/web=200%.
func ParseLoad(text, namespace string) (Load, error) {
	wrong := func(what string) (Load, error) {
		return Load{}, fmt.Errorf("the load %q %s: give it as deployment/web=4.5, in CPUs for all of its Pods, or as deployment/web=200%%, of what they use now", text, what)
	}
	of, amount, ok := strings.Cut(text, "=")
	kind, name, named := strings.Cut(of, "/")
	if !ok || !named || name == "" {
		return wrong("names nothing")
	}
	kind, known := loaded[strings.ToLower(kind)]
	if !known {
		return wrong("is not of a Deployment, StatefulSet or ReplicaSet")
	}
	l := Load{Kind: kind, Name: name, Namespace: namespace}
	if percent, ok := strings.CutSuffix(amount, "%"); ok {
		factor, err := strconv.ParseFloat(percent, 64)
		if err != nil || factor < 0 {
			return wrong("is no number of percent")
		}
		l.Factor = factor / 100
		return l, nil
	}
	quantity, err := resource.ParseQuantity(amount)
	if err != nil || quantity.Sign() < 0 {
		return wrong("is no amount of CPU")
	}
	l.CPU = quantity
	return l, nil
}

// loaded are the kinds whose load is known, by what users call them.
var loaded = map[string]string{
	"deployment": "deployment", "deployments": "deployment", "deploy": "deployment", "deployment.apps": "deployment", "deployments.apps": "deployment",
	"statefulset": "statefulset", "statefulsets": "statefulset", "sts": "statefulset", "statefulset.apps": "statefulset", "statefulsets.apps": "statefulset",
	"replicaset": "replicaset", "replicasets": "replicaset", "rs": "replicaset", "replicaset.apps": "replicaset", "replicasets.apps": "replicaset",
}

// loads say how much Pods have to do. Without a Load, what the Pods of a HorizontalPodAutoscaler's target used in all when it has looked last stays as
// it is, however many Pods share it; of memory, that is what each of them uses.
type loads struct {
	mu    sync.Mutex
	given map[string]Load
	first map[types.UID]*autoscalingv2.HorizontalPodAutoscaler // as they were in the copy

	synced []cache.InformerSynced

	autoscalers autoscalinglisters.HorizontalPodAutoscalerLister
	pods        corelisters.PodLister
	deployments appslisters.DeploymentLister
	sets        appslisters.StatefulSetLister
	replicas    appslisters.ReplicaSetLister
}

func newLoads() *loads {
	return &loads{given: map[string]Load{}, first: map[types.UID]*autoscalingv2.HorizontalPodAutoscaler{}}
}

func loadKey(kind, namespace, name string) string {
	return strings.ToLower(kind) + " " + namespace + "/" + name
}

// give sets loads.
func (l *loads) give(all []Load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, load := range all {
		l.given[loadKey(load.Kind, load.Namespace, load.Name)] = load
	}
}

// watch reads the cluster from shared informers from now on.
func (l *loads) watch(shared informers.SharedInformerFactory) metrics.MetricsClient {
	autoscalers, pods, apps := shared.Autoscaling().V2().HorizontalPodAutoscalers(), shared.Core().V1().Pods(), shared.Apps().V1()
	l.autoscalers, l.pods = autoscalers.Lister(), pods.Lister()
	l.deployments, l.sets, l.replicas = apps.Deployments().Lister(), apps.StatefulSets().Lister(), apps.ReplicaSets().Lister()
	for _, informer := range []cache.SharedIndexInformer{autoscalers.Informer(), pods.Informer(), apps.Deployments().Informer(), apps.StatefulSets().Informer(), apps.ReplicaSets().Informer()} {
		l.synced = append(l.synced, informer.HasSynced)
	}
	noted, err := autoscalers.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: l.note})
	if err != nil { // the informer has stopped
		return l
	}
	l.synced = append(l.synced, noted.HasSynced)
	return l
}

// note notes what an autoscaler of the copy has reported.
func (l *loads) note(object any) {
	if a, ok := object.(*autoscalingv2.HorizontalPodAutoscaler); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.first[a.UID] = a
	}
}

// selects reports whether an autoscaler's target has a selector.
func (l *loads) selects(a *autoscalingv2.HorizontalPodAutoscaler, selector labels.Selector) bool {
	target := a.Spec.ScaleTargetRef
	var of *metav1.LabelSelector
	switch target.Kind {
	case "Deployment":
		if d, err := l.deployments.Deployments(a.Namespace).Get(target.Name); err == nil {
			of = d.Spec.Selector
		}
	case "StatefulSet":
		if s, err := l.sets.StatefulSets(a.Namespace).Get(target.Name); err == nil {
			of = s.Spec.Selector
		}
	case "ReplicaSet":
		if r, err := l.replicas.ReplicaSets(a.Namespace).Get(target.Name); err == nil {
			of = r.Spec.Selector
		}
	}
	if of == nil {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(of)
	return err == nil && s.String() == selector.String()
}

// find returns the autoscaler whose target has a selector, as it was at first, and the load that is given to its target.
func (l *loads) find(namespace string, selector labels.Selector) (*autoscalingv2.HorizontalPodAutoscaler, *Load) {
	cache.WaitForCacheSync(nil, l.synced...)
	all, err := l.autoscalers.HorizontalPodAutoscalers(namespace).List(labels.Everything())
	if err != nil {
		return nil, nil
	}
	for _, a := range all {
		if !l.selects(a, selector) {
			continue
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		first := l.first[a.UID]
		if load, ok := l.given[loadKey(a.Spec.ScaleTargetRef.Kind, namespace, a.Spec.ScaleTargetRef.Name)]; ok {
			return first, &load
		}
		return first, nil
	}
	return nil, nil
}

// ready returns the names of the Pods that a selector selects and that are ready: these share the load.
func (l *loads) ready(namespace string, selector labels.Selector) (names []string, err error) {
	all, err := l.pods.Pods(namespace).List(selector)
	for _, pod := range all {
		if pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			names = append(names, pod.Name)
		}
	}
	return names, err
}

var errUnknownLoad = errors.New("the copy does not say how much the Pods have to do; give it with --load")

// GetResourceMetric implements metrics.MetricsClient.
func (l *loads) GetResourceMetric(_ context.Context, name corev1.ResourceName, namespace string, selector labels.Selector, container string) (metrics.PodMetricsInfo, time.Time, error) {
	pods, err := l.ready(namespace, selector)
	if err != nil {
		return nil, time.Time{}, err
	}
	first, given := l.find(namespace, selector)
	var each int64 // of one Pod, in thousandths
	switch average := averageOf(first, name, container); {
	case name == corev1.ResourceCPU && given != nil && !given.CPU.IsZero():
		each = given.CPU.MilliValue() / max(int64(len(pods)), 1)
	case average == nil:
		return nil, time.Time{}, errUnknownLoad
	case name == corev1.ResourceCPU:
		each = given.times(average.MilliValue()*int64(first.Status.CurrentReplicas)) / max(int64(len(pods)), 1)
	default:
		each = average.MilliValue()
	}
	return same(pods, each), time.Now(), nil
}

// times returns a load multiplied with the factor that is given.
func (l *Load) times(load int64) int64 {
	if l == nil || !l.CPU.IsZero() {
		return load
	}
	return int64(float64(load) * l.Factor)
}

// window is the time over which metrics-server averages, as it looks every 15 s. HorizontalPodAutoscalers leave out new Pods for so long.
const window = 15 * time.Second

// same returns the same metric for each of some Pods.
func same(pods []string, each int64) metrics.PodMetricsInfo {
	info := metrics.PodMetricsInfo{}
	for _, name := range pods {
		info[name] = metrics.PodMetric{Timestamp: time.Now(), Window: window, Value: each}
	}
	return info
}

// averageOf returns what a Pod uses of a resource on average, or one of its containers, as an autoscaler has reported it.
func averageOf(a *autoscalingv2.HorizontalPodAutoscaler, name corev1.ResourceName, container string) *resource.Quantity {
	if a == nil {
		return nil
	}
	for _, m := range a.Status.CurrentMetrics {
		if m.Resource != nil && m.Resource.Name == name && container == "" {
			return m.Resource.Current.AverageValue
		}
		if c := m.ContainerResource; c != nil && c.Name == name && c.Container == container {
			return c.Current.AverageValue
		}
	}
	return nil
}

// GetRawMetric implements metrics.MetricsClient.
func (l *loads) GetRawMetric(name, namespace string, selector, _ labels.Selector) (metrics.PodMetricsInfo, time.Time, error) {
	pods, err := l.ready(namespace, selector)
	if err != nil {
		return nil, time.Time{}, err
	}
	first, given := l.find(namespace, selector)
	if first != nil {
		for _, m := range first.Status.CurrentMetrics {
			if m.Pods != nil && m.Pods.Metric.Name == name && m.Pods.Current.AverageValue != nil {
				all := m.Pods.Current.AverageValue.MilliValue() * int64(first.Status.CurrentReplicas)
				return same(pods, given.times(all)/max(int64(len(pods)), 1)), time.Now(), nil
			}
		}
	}
	return nil, time.Time{}, errUnknownLoad
}

// GetObjectMetric implements metrics.MetricsClient.
func (l *loads) GetObjectMetric(name, namespace string, of *autoscalingv2.CrossVersionObjectReference, _ labels.Selector) (int64, time.Time, error) {
	for _, a := range l.reported(namespace) {
		for _, m := range a.Status.CurrentMetrics {
			if o := m.Object; o != nil && o.Metric.Name == name && o.DescribedObject.Kind == of.Kind && o.DescribedObject.Name == of.Name {
				if all, ok := total(o.Current, a.Status.CurrentReplicas); ok {
					return all, time.Now(), nil
				}
			}
		}
	}
	return 0, time.Time{}, errUnknownLoad
}

// GetExternalMetric implements metrics.MetricsClient.
func (l *loads) GetExternalMetric(name, namespace string, selector labels.Selector) ([]int64, time.Time, error) {
	for _, a := range l.reported(namespace) {
		for _, m := range a.Status.CurrentMetrics {
			e := m.External
			if e == nil || e.Metric.Name != name {
				continue
			}
			if s, err := metav1.LabelSelectorAsSelector(e.Metric.Selector); err != nil || e.Metric.Selector != nil && s.String() != selector.String() {
				continue
			}
			if all, ok := total(e.Current, a.Status.CurrentReplicas); ok {
				return []int64{all}, time.Now(), nil
			}
		}
	}
	return nil, time.Time{}, errUnknownLoad
}

// reported returns the autoscalers of a namespace as they were at first.
func (l *loads) reported(namespace string) (all []*autoscalingv2.HorizontalPodAutoscaler) {
	now, err := l.autoscalers.HorizontalPodAutoscalers(namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	cache.WaitForCacheSync(nil, l.synced...)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range now {
		if first := l.first[a.UID]; first != nil {
			all = append(all, first)
		}
	}
	return all
}

// total returns what an autoscaler has reported, for all Pods.
func total(current autoscalingv2.MetricValueStatus, replicas int32) (int64, bool) {
	switch {
	case current.Value != nil && !current.Value.IsZero():
		return current.Value.MilliValue(), true
	case current.AverageValue != nil:
		return current.AverageValue.MilliValue() * int64(replicas), true
	}
	return 0, false
}
