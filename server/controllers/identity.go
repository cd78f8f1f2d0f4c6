package controllers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// as returns the configuration of clients that act as the service account of that name in kube-system, to which the bootstrap roles
// grant what the controller needs; or as kube-controller-manager, if the name is empty. With --use-service-account-credentials=false
// they act as the server itself.
//
// The transport states the user, so no token is signed and the service accounts need not exist. They do not: nobody else can become
// a controller by asking for its token.
func (c Config) as(account string) *rest.Config {
	switch {
	case !c.Settings.KubeCloudShared.UseServiceAccountCredentials:
		return c.Loopback
	case account == "":
		return c.LoopbackOf(user.KubeControllerManager)
	}
	return c.LoopbackOf(serviceaccount.MakeUsername(metav1.NamespaceSystem, account), serviceaccount.MakeGroupNames(metav1.NamespaceSystem)...)
}

// scheduler returns the configuration of clients that act as kube-scheduler.
func (c Config) scheduler() *rest.Config { return c.LoopbackOf(user.KubeScheduler) }
