package controlplane

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	informersv1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/cluster-bootstrap/token/api"

	"github.com/sqube/sqube/server/controllers"
)

// joining are shared informers for the controllers of bootstrap tokens: only bootstrap tokens of all Secrets, and only cluster-info of
// all ConfigMaps. kube-controller-manager holds all of both.
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

// Core returns the group's informers.
func (j joining) Core() core.Interface { return joiningCore{j.SharedInformerFactory.Core(), j} }

type joiningCore struct {
	core.Interface
	joining joining
}

// V1 returns the version's informers.
func (c joiningCore) V1() informersv1.Interface { return joiningV1{c.Interface.V1(), c.joining} }

type joiningV1 struct {
	informersv1.Interface
	joining joining
}

// Secrets returns the informer of bootstrap tokens.
func (v joiningV1) Secrets() informersv1.SecretInformer {
	return v.joining.tokens.Core().V1().Secrets()
}

// ConfigMaps returns the informer of cluster-info.
func (v joiningV1) ConfigMaps() informersv1.ConfigMapInformer {
	return v.joining.info.Core().V1().ConfigMaps()
}
