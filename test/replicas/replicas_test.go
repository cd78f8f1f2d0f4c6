package replicas

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// replica is one of the servers that share a database.
type replica struct {
	*sqube.Server
	kubernetes.Interface
}

// start starts three servers on one database, with the same keys.
func start(t *testing.T) []replica {
	t.Helper()
	datastore, key := harness.Postgres(t), sqube.KeyFile(t)
	replicas := make([]replica, 3)
	for i := range replicas {
		replicas[i].Server = sqube.Launch(t, sqube.Options{Datastore: datastore, Args: []string{keyFlag, key}})
	}
	for i := range replicas {
		replicas[i].WaitReady(t)
		replicas[i].Interface = client(t, replicas[i].Config(t))
	}
	return replicas
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// TestReplicas checks what servers do for each other. TestRobustness checks that reads, lists and watches on any of them agree.
func TestReplicas(t *testing.T) {
	t.Parallel()
	replicas := start(t)
	t.Run("a definition that one has established is served by all", func(t *testing.T) { defineElsewhere(t, replicas) })
	t.Run("a policy decides by a parameter that was changed on another server", func(t *testing.T) { parameterElsewhere(t, replicas) })
	t.Run("the controllers move when their server dies or stops", func(t *testing.T) { controllersMove(t, replicas) })
}

func tokens(t *testing.T, replicas []replica) {
	harness.Eventually(t, "there is a ServiceAccount", func() bool {
		_, err := replicas[0].CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	token := tokenRequest(t, replicas[0])
	for i, r := range replicas {
		if user := whoami(t, r, token); user != "system:serviceaccount:default:default" {
			t.Errorf("server %d attributes the token to %q", i, user)
		}
	}
}

// controllersMove kills servers until one is left, and checks after each that the garbage collector works.
func controllersMove(t *testing.T, replicas []replica) {
	for i := range replicas {
		last := replicas[len(replicas)-1]
		collected(t, last, fmt.Sprint("owner-", i))
		switch i {
		case 0:
			replicas[i].Kill(t)
		case 1:
			replicas[i].Stop(t)
		}
	}
}

// collected deletes an object and waits until its dependents are gone.
func collected(t *testing.T, r replica, name string) {
	t.Helper()
	maps := r.CoreV1().ConfigMaps("default")
	owner, err := maps.Create(t.Context(), configMap(name), metav1.CreateOptions{})
	harness.Must(t, err)
	owned := configMap(name + "-owned")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	if _, err := maps.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Must(t, maps.Delete(t.Context(), name, metav1.DeleteOptions{}))
	harness.Eventually(t, "the dependents of "+name+" are collected", func() bool {
		_, err := maps.Get(t.Context(), owned.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
