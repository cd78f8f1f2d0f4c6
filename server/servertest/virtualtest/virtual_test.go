package virtualtest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
)

func TestVirtual(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servertest.Run(t, servertest.Options{Virtual: true})
				c := kubernetes.NewForConfigOrDie(s.Config)
				made, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				t.Log(made.CreationTimestamp, time.Now())
				time.Sleep(time.Hour)
				t.Log(time.Now())
			})
		})
	}
}

func TestPlane(t *testing.T) {
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servertest.Run(t, servertest.Options{Virtual: true, ControlPlane: controlplane.All})
				c := kubernetes.NewForConfigOrDie(s.Config)
				made, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				t.Log(made.CreationTimestamp, time.Now())
				time.Sleep(time.Hour)
				t.Log(time.Now())
			})
		})
	}
}
