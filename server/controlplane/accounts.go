package controlplane

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
)

// impersonating makes clients that impersonate the service accounts of their names in kube-system, to which the bootstrap roles grant
// the rights that each controller needs.
type impersonating struct {
	clientbuilder.SimpleControllerClientBuilder
}

func (b impersonating) Config(name string) (*rest.Config, error) {
	config, err := b.SimpleControllerClientBuilder.Config(name)
	if err == nil {
		config.Impersonate = rest.ImpersonationConfig{
			UserName: serviceaccount.MakeUsername(metav1.NamespaceSystem, name),
			Groups:   append(serviceaccount.MakeGroupNames(metav1.NamespaceSystem), "system:authenticated"),
		}
	}
	return config, err
}

func (b impersonating) Client(name string) (kubernetes.Interface, error) {
	config, err := b.Config(name)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

func (b impersonating) ConfigOrDie(name string) *rest.Config { return orDie(b.Config(name)) }

func (b impersonating) ClientOrDie(name string) kubernetes.Interface { return orDie(b.Client(name)) }

func orDie[T any](value T, err error) T {
	if err != nil {
		klog.Fatal(err)
	}
	return value
}
