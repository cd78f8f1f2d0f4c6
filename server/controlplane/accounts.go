package controlplane

import (
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

// accounts makes the clients of upstream's controllers, which act as the service accounts of their names.
type accounts func(name string) *rest.Config

func (a accounts) of(name string) clientbuilder.SimpleControllerClientBuilder {
	return clientbuilder.SimpleControllerClientBuilder{ClientConfig: a(name)}
}

func (a accounts) Config(name string) (*rest.Config, error) { return a.of(name).Config(name) }

func (a accounts) ConfigOrDie(name string) *rest.Config { return a.of(name).ConfigOrDie(name) }

func (a accounts) Client(name string) (kubernetes.Interface, error) { return a.of(name).Client(name) }

func (a accounts) ClientOrDie(name string) kubernetes.Interface { return a.of(name).ClientOrDie(name) }

func (a accounts) DiscoveryClient(name string) (discovery.DiscoveryInterface, error) {
	return a.of(name).DiscoveryClient(name)
}

func (a accounts) DiscoveryClientOrDie(name string) discovery.DiscoveryInterface {
	return a.of(name).DiscoveryClientOrDie(name)
}
