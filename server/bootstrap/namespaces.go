package bootstrap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controlplane/controller/systemnamespaces"
)

var systemNamespaces = []string{
	metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease,
}

// namespacesHook creates the system namespaces, then upstream's controller recreates those that are deleted. Unlike upstream,
// readiness waits for them, since other hooks write into them.
func namespacesHook(client kubernetes.Interface, informer coreinformers.NamespaceInformer) *hook {
	controller := systemnamespaces.NewController(systemNamespaces, client, informer)
	return &hook{
		name: "start-system-namespaces-controller",
		ensure: func(ctx context.Context) error {
			return each(ctx, systemNamespaces, func(ctx context.Context, name string) error {
				return ensureNamespace(ctx, client, name)
			})
		},
		serve: readyAtOnce(func(ctx context.Context) { controller.Run(ctx.Done()) }),
	}
}

func ensureNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		err = created(err)
	}
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}
