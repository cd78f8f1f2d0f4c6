package admission

import (
	"context"
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sqube/sqube/sqlstore"
)

// Webhooks and policies select by the labels of a namespace, which upstream's plugins ask the server for without the context of the request.
// So a namespace that an open transaction creates is found by its name: nobody else asks for it, since nothing else can be written in a
// namespace that does not exist. Of two transactions that create the same one, the second is refused here; it could not be committed anyway.

// createdNamespaces are the open transactions in which something is written in a namespace that they have written, by its name.
type createdNamespaces struct{ sync.Map }

var namespaceResource = sqlstore.Resource{Name: "namespaces"}

// note notes that a transaction writes in a namespace.
func (c *createdNamespaces) note(t *sqlstore.Transaction, namespace string) error {
	if namespace == "" || !slices.Contains(t.Changed(namespaceResource), sqlstore.Object{Name: namespace}) {
		return nil
	}
	switch of, known := c.LoadOrStore(namespace, t); {
	case !known:
		t.AtEnd(func(sqlstore.Outcome) { c.Delete(namespace) })
	case of != t:
		return apierrors.NewConflict(corev1.Resource("namespaces"), namespace, errors.New("another transaction is writing it: try again"))
	}
	return nil
}

// namespacesAreSeen gives the plugins of webhooks and policies a client that finds these namespaces.
type namespacesAreSeen struct {
	client  kubernetes.Interface
	created *createdNamespaces
}

// Initialize implements admission.PluginInitializer.
func (n namespacesAreSeen) Initialize(plugin admission.Interface) {
	switch plugin.(type) {
	case *mutatingwebhook.Plugin, *validatingwebhook.Plugin, *validatingpolicy.Plugin, *mutatingpolicy.Plugin:
		plugin.(interface{ SetExternalKubeClientSet(kubernetes.Interface) }).SetExternalKubeClientSet(seeingClient{n.client, n.created})
	}
}

type seeingClient struct {
	kubernetes.Interface
	created *createdNamespaces
}

// CoreV1 implements kubernetes.Interface.
func (c seeingClient) CoreV1() typedcorev1.CoreV1Interface {
	return seeingCore{c.Interface.CoreV1(), c.created}
}

type seeingCore struct {
	typedcorev1.CoreV1Interface
	created *createdNamespaces
}

// Namespaces implements typedcorev1.NamespacesGetter.
func (c seeingCore) Namespaces() typedcorev1.NamespaceInterface {
	return seeingNamespaces{c.CoreV1Interface.Namespaces(), c.created}
}

type seeingNamespaces struct {
	typedcorev1.NamespaceInterface
	created *createdNamespaces
}

// Get implements typedcorev1.NamespaceInterface.
func (n seeingNamespaces) Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Namespace, error) {
	found, err := n.NamespaceInterface.Get(ctx, name, options)
	if apierrors.IsNotFound(err) {
		if t, ok := n.created.Load(name); ok {
			return n.NamespaceInterface.Get(sqlstore.WithTransaction(ctx, t.(*sqlstore.Transaction)), name, options)
		}
	}
	return found, err
}
