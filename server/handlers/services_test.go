package handlers_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestServices checks that Services get addresses and node ports from the stored allocators, and release them.
func TestServices(t *testing.T) {
	a := newAPI(t, options{storage: newStore(t)})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
		a.informers.Shutdown()
	})

	// As in the bootstrap of a server.
	cidr := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{serviceRange.String()}},
	}
	if _, err := a.client.NetworkingV1().ServiceCIDRs().Create(ctx, cidr, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.informers.Start(ctx.Done())
	repaired := make(chan struct{})
	running.Go(func() { a.built.Repair.Run(ctx, func() { close(repaired) }) })
	<-repaired

	services := a.client.CoreV1().Services("default")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeNodePort,
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}},
		},
	}
	created, err := services.Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address, err := netip.ParseAddr(created.Spec.ClusterIP)
	if err != nil || !netip.MustParsePrefix(serviceRange.String()).Contains(address) {
		t.Errorf("its address is %q", created.Spec.ClusterIP)
	}
	if _, err := a.client.NetworkingV1().IPAddresses().Get(ctx, created.Spec.ClusterIP, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	service.Name = "other"
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err == nil {
		t.Fatal("two Services got the same node port")
	}
	if err := services.Delete(ctx, "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Errorf("the node port of a deleted Service isn't free: %v", err)
	}
}
