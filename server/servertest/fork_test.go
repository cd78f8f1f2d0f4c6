package servertest_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// TestFork forks a running server, also in bubbles: each fork goes on by itself, and has nothing by which it would pass for the original.
func TestFork(t *testing.T) {
	base := servertest.Run(t, servertest.Options{CRDs: []string{"testdata/crds"}})
	of := func(s *servertest.Server) dynamic.ResourceInterface {
		return dynamic.NewForConfigOrDie(s.Config).Resource(boats).Namespace("default")
	}
	sloop, err := of(base).Create(t.Context(), boat("sloop", 9), metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = of(base).Create(t.Context(), boat("cutter", 12), metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "there is a service account", func() bool { // otherwise its Secret would be removed
		_, err := client(t, base).CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: corev1.SecretTypeServiceAccountToken}
	_, err = client(t, base).CoreV1().Secrets("default").Create(t.Context(), token, metav1.CreateOptions{})
	harness.Must(t, err)
	var bearer string
	harness.Eventually(t, "the Secret has a token", func() bool {
		got, err := client(t, base).CoreV1().Secrets("default").Get(t.Context(), "token", metav1.GetOptions{})
		bearer = string(got.Data[corev1.ServiceAccountTokenKey])
		return err == nil && bearer != ""
	})

	fork := base.Fork(t, servertest.Options{})
	if got, err := of(fork).Get(t.Context(), "sloop", metav1.GetOptions{}); err != nil || got.GetUID() != sloop.GetUID() || got.GetResourceVersion() != sloop.GetResourceVersion() {
		t.Errorf("the fork has %v, %v", got, err)
	}
	harness.Must(t, of(fork).Delete(t.Context(), "sloop", metav1.DeleteOptions{}))
	if _, err := of(base).Get(t.Context(), "sloop", metav1.GetOptions{}); err != nil {
		t.Errorf("what is deleted in a fork, in the original: %v", err)
	}
	if _, err := client(t, fork).CoreV1().Secrets("default").Get(t.Context(), "token", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the original's token in the fork: %v", err)
	}
	asOriginal := rest.CopyConfig(base.Config)
	asOriginal.Host, asOriginal.Insecure, asOriginal.CAData, asOriginal.CAFile = fork.Config.Host, true, nil, ""
	withToken := rest.AnonymousClientConfig(asOriginal)
	withToken.BearerToken = bearer
	atHome := rest.CopyConfig(withToken)
	atHome.Host = base.Config.Host
	if _, err := kubernetes.NewForConfigOrDie(atHome).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the service account in the original: %v", err)
	}
	for who, config := range map[string]*rest.Config{"administrator": asOriginal, "service account": withToken} {
		if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("the original's %s in the fork: %v", who, err)
		}
	}

	revision, err := strconv.ParseInt(sloop.GetResourceVersion(), 10, 64)
	harness.Must(t, err)
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			s := base.Fork(t, servertest.Options{Virtual: true, AtRevision: revision})
			if _, err := of(s).Get(t.Context(), "cutter", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("what was created later, in a fork of the moment before: %v", err)
			}
			made, err := of(s).Create(t.Context(), boat("yawl", 7), metav1.CreateOptions{})
			harness.Must(t, err)
			if made.GetCreationTimestamp().Time.Before(sloop.GetCreationTimestamp().Time) {
				t.Errorf("time in the fork begins at %s, before that of the original, %s", made.GetCreationTimestamp(), sloop.GetCreationTimestamp())
			}
			time.Sleep(time.Hour)
			harness.Must(t, of(s).Delete(t.Context(), "sloop", metav1.DeleteOptions{}))
		})
	}
	if list, err := of(base).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 2 {
		t.Errorf("the original has %v, %v", list, err)
	}
	if _, err := servertest.Start(servertest.Options{AtRevision: 7}); err == nil {
		t.Error("a moment of nothing is no error")
	}
}
