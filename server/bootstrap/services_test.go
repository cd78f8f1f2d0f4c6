package bootstrap

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestServiceCIDRCreatedTwice checks that upstream's controller gets the ranges to compare if the object exists already.
func TestServiceCIDRCreatedTwice(t *testing.T) {
	ranges := rangeClient{fake.NewClientset()}.NetworkingV1().ServiceCIDRs()
	wanted := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24"}},
	}
	if _, err := ranges.Create(t.Context(), wanted, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	present, err := ranges.Create(t.Context(), wanted, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) || len(present.Spec.CIDRs) != 1 {
		t.Errorf("the second creation returned %+v, %v", present, err)
	}
}
