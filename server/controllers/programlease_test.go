package controllers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

// TestFollowProgram follows the Lease of a kube-controller-manager whose clock differs from the server's.
func TestFollowProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := kubefake.NewClientset()
		leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
		ctx, cancel := context.WithCancel(t.Context())
		holders := followProgram(ctx, client, managerProgram)
		expect := func(what, want string) {
			t.Helper()
			select {
			case got, ok := <-holders:
				if !ok || got != want {
					t.Fatalf("%s: got %q, want %q", what, got, want)
				}
			case <-time.After(time.Second / 2): // of the bubble's clock
				t.Fatalf("%s: got nothing, want %q", what, want)
			}
		}
		quiet := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case got := <-holders:
				t.Fatalf("%s: got %q", what, got)
			default:
			}
		}
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: managerProgram, Namespace: metav1.NamespaceSystem},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("one"), LeaseDurationSeconds: ptr.To[int32](15)},
		}
		renewed := 0
		renew := func(holder string) {
			t.Helper()
			renewed++
			lease.Spec.HolderIdentity = ptr.To(holder)
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(int64(renewed), 0)} // long ago
			if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		expect("without a Lease", "")
		if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("when it is taken", "one")
		for range 10 {
			time.Sleep(14 * time.Second)
			renew("one")
			quiet("while it is renewed")
		}
		renew("two")
		expect("when another takes it", "two")
		renew("")
		expect("when it is released", "")
		renew("two")
		expect("when it is taken again", "two")
		time.Sleep(14 * time.Second)
		quiet("before it expires")
		time.Sleep(2 * time.Second)
		expect("when it has expired", "")
		time.Sleep(time.Hour)
		quiet("long after")
		renew("three")
		expect("when it is taken after it expired", "three")
		if err := leases.Delete(t.Context(), managerProgram, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("when it is deleted", "")
		cancel()
		synctest.Wait()
		if _, ok := <-holders; ok {
			t.Fatal("the channel is open after the end")
		}
	})
}
