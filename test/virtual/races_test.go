package virtual

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"

	"github.com/sqube/sqube/server/servertest"
)

// planted is set in the process whose controllers have a race.
var planted = os.Getenv("PLANTED_RACE") != ""

// protects checks that a controller adds its finalizer to an object beside another one's.
func protects(t *testing.T, s *servertest.Server) {
	start(t, s.Unsteady(s.Config), protector)
	time.Sleep(time.Second)
	configMaps := kubernetes.NewForConfigOrDie(s.Config).CoreV1().ConfigMaps("default")
	_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: protected}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		c, err := configMaps.Get(t.Context(), "a", metav1.GetOptions{})
		if err == nil {
			c.Finalizers = append(c.Finalizers, "example.com/backup")
			_, err = configMaps.Update(t.Context(), c, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Minute)
	if c, err := configMaps.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || len(c.Finalizers) != 2 {
		t.Errorf("the object has the finalizers %v: %v", c.Finalizers, err)
	}
}

// makesOneChild checks that a controller makes one child of an object that changes meanwhile.
func makesOneChild(t *testing.T, s *servertest.Server) {
	start(t, s.Unsteady(s.Config), parent)
	time.Sleep(time.Second)
	core := kubernetes.NewForConfigOrDie(s.Config).CoreV1()
	c, err := core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: protected}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	c.Data = map[string]string{"changed": "1"}
	if _, err = core.ConfigMaps("default").Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Minute)
	if children, err := core.Secrets("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(children.Items) != 1 {
		t.Errorf("the object has %d children: %v", len(children.Items), err)
	}
}

var protected = map[string]string{"protected": "true"}

// reconciler returns a function that is called for an object in a namespace after each change.
type reconciler func(client kubernetes.Interface, informers informers.SharedInformerFactory) func(ctx context.Context, name cache.ObjectName) error

// start starts a controller of ConfigMaps that ends with the test.
func start(t *testing.T, config *rest.Config, r reconciler) {
	client := kubernetes.NewForConfigOrDie(config)
	factory := informers.NewSharedInformerFactory(client, 0)
	reconcile := r(client, factory)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	enqueue := func(o any) {
		if c := o.(*corev1.ConfigMap); c.Labels["protected"] == "true" {
			queue.Add(cache.MetaObjectToName(c))
		}
	}
	factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	go func() {
		factory.WaitForCacheSync(ctx.Done())
		for {
			name, end := queue.Get()
			if end {
				return
			}
			if err := reconcile(ctx, name); err != nil && !errors.IsNotFound(err) {
				queue.AddRateLimited(name)
			} else {
				queue.Forget(name)
			}
			queue.Done(name)
		}
	}()
	t.Cleanup(func() {
		cancel()
		queue.ShutDown()
		factory.Shutdown()
	})
}

// protector adds a finalizer to ConfigMaps.
func protector(client kubernetes.Interface, informers informers.SharedInformerFactory) func(ctx context.Context, name cache.ObjectName) error {
	lister := informers.Core().V1().ConfigMaps().Lister()
	return func(ctx context.Context, name cache.ObjectName) error {
		cached, err := lister.ConfigMaps(name.Namespace).Get(name.Name)
		if err != nil || slices.Contains(cached.Finalizers, "example.com/protect") {
			return err
		}
		c := cached.DeepCopy()
		c.Finalizers = append(c.Finalizers, "example.com/protect")
		if planted {
			c.ResourceVersion = "" // The race: without it, the update replaces what the cache does not have yet.
		}
		_, err = client.CoreV1().ConfigMaps(name.Namespace).Update(ctx, c, metav1.UpdateOptions{})
		return err
	}
}

// parent makes a Secret for each ConfigMap.
func parent(client kubernetes.Interface, informers informers.SharedInformerFactory) func(ctx context.Context, name cache.ObjectName) error {
	configMaps, secrets := informers.Core().V1().ConfigMaps().Lister(), informers.Core().V1().Secrets().Lister()
	return func(ctx context.Context, name cache.ObjectName) error {
		owner, err := configMaps.ConfigMaps(name.Namespace).Get(name.Name)
		if err != nil {
			return err
		}
		known, err := secrets.Secrets(name.Namespace).List(labels.Everything())
		if err != nil || slices.ContainsFunc(known, func(s *corev1.Secret) bool { return metav1.IsControlledBy(s, owner) }) {
			return err
		}
		child := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name:            name.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
		}}
		if planted {
			// The race: the cache may not have the child that was made last time, and a new name allows another one.
			child.Name, child.GenerateName = "", name.Name+"-"
		}
		_, err = client.CoreV1().Secrets(name.Namespace).Create(ctx, child, metav1.CreateOptions{})
		if errors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
}
