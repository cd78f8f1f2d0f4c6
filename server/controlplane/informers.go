package controlplane

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	informersv1 "k8s.io/client-go/informers/core/v1"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/cluster-bootstrap/token/api"

	"github.com/sqube/sqube/server/controllers"
)

// schedulable are shared informers for the scheduler, without Pods that have ended, which use no resources of their nodes.
// kube-scheduler excludes them by a field selector; here the Pods are shared with the controllers.
type schedulable struct {
	informers.SharedInformerFactory
}

func (s schedulable) Core() core.Interface { return schedulableCore{s.SharedInformerFactory.Core()} }

type schedulableCore struct{ core.Interface }

func (c schedulableCore) V1() informersv1.Interface { return schedulableV1{c.Interface.V1()} }

type schedulableV1 struct{ informersv1.Interface }

// Pods returns the informer of Pods that have not ended.
func (v schedulableV1) Pods() informersv1.TypedPodInformer {
	return informersv1.ToTypedPodInformer(unfinishedPods{v.Interface.Pods()})
}

// unfinishedPods does not embed the typed interface, whose other method would return all Pods.
type unfinishedPods struct{ informersv1.PodInformer }

// Informer returns an informer that reports a Pod that ends as deleted.
func (p unfinishedPods) Informer() cache.SharedIndexInformer {
	return unfinishedInformer{p.PodInformer.Informer()}
}

// Lister returns a lister of Pods that have not ended.
func (p unfinishedPods) Lister() listersv1.PodLister {
	return unfinishedLister{p.PodInformer.Lister()}
}

type unfinishedInformer struct{ cache.SharedIndexInformer }

// AddEventHandler adds a handler, which gets a Pod that ends as deleted.
func (i unfinishedInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			pod, ok := object.(*corev1.Pod)
			return ok && !finished(pod)
		},
		Handler: h,
	})
}

// finished reports whether a Pod has ended, so that it takes no resources of its node.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

func onlyUnfinished(pods []*corev1.Pod, err error) ([]*corev1.Pod, error) {
	return slices.DeleteFunc(pods, finished), err
}

type unfinishedLister struct{ listersv1.PodLister }

func (l unfinishedLister) List(selector labels.Selector) ([]*corev1.Pod, error) {
	return onlyUnfinished(l.PodLister.List(selector))
}

func (l unfinishedLister) Pods(namespace string) listersv1.PodNamespaceLister {
	return unfinishedNamespace{l.PodLister.Pods(namespace)}
}

type unfinishedNamespace struct{ listersv1.PodNamespaceLister }

func (l unfinishedNamespace) List(selector labels.Selector) ([]*corev1.Pod, error) {
	return onlyUnfinished(l.PodNamespaceLister.List(selector))
}

func (l unfinishedNamespace) Get(name string) (*corev1.Pod, error) {
	pod, err := l.PodNamespaceLister.Get(name)
	if err == nil && finished(pod) {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return pod, err
}

// joining are shared informers for the controllers of bootstrap tokens. Of all Secrets they hold only bootstrap tokens, and of all
// ConfigMaps only cluster-info. kube-controller-manager holds all Secrets and ConfigMaps.
type joining struct {
	informers.SharedInformerFactory
	tokens, info informers.SharedInformerFactory
}

func newJoining(shared controllers.Shared) joining {
	return joining{
		shared.Informers,
		shared.Selected(fields.OneTermEqualSelector("type", string(api.SecretTypeBootstrapToken))),
		shared.Selected(fields.OneTermEqualSelector(metav1.ObjectNameField, api.ConfigMapClusterInfo)),
	}
}

func (j joining) Core() core.Interface { return joiningCore{j.SharedInformerFactory.Core(), j} }

type joiningCore struct {
	core.Interface
	joining joining
}

func (c joiningCore) V1() informersv1.Interface { return joiningV1{c.Interface.V1(), c.joining} }

type joiningV1 struct {
	informersv1.Interface
	joining joining
}

// Secrets returns the informer of bootstrap tokens.
func (v joiningV1) Secrets() informersv1.TypedSecretInformer {
	return v.joining.tokens.Core().V1().Secrets()
}

// ConfigMaps returns the informer of cluster-info.
func (v joiningV1) ConfigMaps() informersv1.TypedConfigMapInformer {
	return v.joining.info.Core().V1().ConfigMaps()
}
