package trial

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// service gives a Service of type LoadBalancer an address, if another one of its class has one: then something in the real cluster does that.
func (p *parts) service(ctx context.Context, service *corev1.Service) error {
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || len(service.Status.LoadBalancer.Ingress) > 0 || service.DeletionTimestamp != nil {
		return nil
	}
	others, err := p.shared.Core().V1().Services().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	for _, other := range others {
		if !equality.Semantic.DeepEqual(other.Spec.LoadBalancerClass, service.Spec.LoadBalancerClass) || len(other.Status.LoadBalancer.Ingress) == 0 {
			continue
		}
		p.given++
		// An address for documentation, in the form of the other one's.
		ingress := corev1.LoadBalancerIngress{IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(p.given)}).String()}
		if other.Status.LoadBalancer.Ingress[0].Hostname != "" {
			ingress = corev1.LoadBalancerIngress{Hostname: service.Name + "." + service.Namespace + ".example"}
		}
		return patch(map[string]any{"status": corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{ingress}}}}, func(text []byte) error {
			_, err := p.services.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.MergePatchType, text, metav1.PatchOptions{}, "status")
			return err
		})
	}
	return nil
}
