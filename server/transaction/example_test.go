package transaction_test

import (
	"context"
	"fmt"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sqube/sqube/server/transaction"
)

// Two accounts are read, and both are written with the resourceVersions that were read: if another client has changed one of them meanwhile, or
// does so before the commit, nothing is written, and it begins again. At no moment does anybody see another sum.
func Example_move() {
	ctx, clientset := context.Background(), kubernetes.NewForConfigOrDie(config)
	client, err := transaction.NewClient(config, scheme.Scheme)
	if err != nil {
		panic(err)
	}
	accounts := clientset.CoreV1().ConfigMaps("default")
	for name, amount := range map[string]string{"alice": "100", "bob": "20"} {
		account := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"amount": amount}}
		if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil {
			panic(err)
		}
	}

	add := func(account *corev1.ConfigMap, amount int) {
		now, _ := strconv.Atoi(account.Data["amount"])
		account.Data["amount"] = strconv.Itoa(now + amount)
	}
	move := func(amount int) error {
		for {
			from, err := accounts.Get(ctx, "alice", metav1.GetOptions{})
			if err != nil {
				return err
			}
			to, err := accounts.Get(ctx, "bob", metav1.GetOptions{})
			if err != nil {
				return err
			}
			add(from, -amount)
			add(to, amount)
			t := client.New("")
			t.Update(from)
			t.Update(to)
			if _, err = t.Commit(ctx); !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	if err := move(30); err != nil {
		panic(err)
	}

	for _, name := range []string{"alice", "bob"} {
		account, err := accounts.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			panic(err)
		}
		fmt.Println(name, "has", account.Data["amount"])
	}
	// Output:
	// alice has 70
	// bob has 50
}

// A leader writes only as long as the Lease names it. Since the Lease is checked in the same commit as the write, a leader that was suspended
// and does not know yet that another one has taken over can't write, on whichever server.
func Example_fence() {
	ctx, clientset := context.Background(), kubernetes.NewForConfigOrDie(config)
	client, err := transaction.NewClient(config, scheme.Scheme)
	if err != nil {
		panic(err)
	}
	leases := clientset.CoordinationV1().Leases("default")
	leader := "replica-1"
	lease, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "controller", Namespace: "default"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &leader},
	}, metav1.CreateOptions{})
	if err != nil {
		panic(err)
	}

	write := func(as, state string) {
		t := client.New("")
		t.FieldManager = "controller"
		t.RequireField(lease, ".spec.holderIdentity", as)
		t.Apply(map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "state", "namespace": "default"}, "data": map[string]string{"state": state},
		}, true)
		_, err := t.Commit(ctx)
		if _, why, ok := transaction.RequirementOf(err); ok {
			fmt.Println(as, "leads no more:", why)
			return
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(as, "has written", state)
	}
	write("replica-1", "one")

	next := "replica-2" // takes over
	lease.Spec.HolderIdentity = &next
	if lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		panic(err)
	}
	write("replica-2", "two")
	write("replica-1", "three")
	// Output:
	// replica-1 has written one
	// replica-2 has written two
	// replica-1 leads no more: .spec.holderIdentity is not as required
}
