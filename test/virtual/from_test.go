package virtual

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// TestFrom starts a virtual server on what a real one has saved, and checks that its time goes on from there.
func TestFrom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "saved.db")
	former := servertest.Run(t, servertest.Options{NoControllers: true})
	saved, err := kubernetes.NewForConfigOrDie(former.Config).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "saved"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Must(t, former.Save(file))
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Run(t, servertest.Options{Virtual: true, NoControllers: true, From: file})
		object, err := kubernetes.NewForConfigOrDie(s.Config).CoreV1().ConfigMaps("default").Get(t.Context(), "saved", metav1.GetOptions{})
		if err != nil || object.UID != saved.UID {
			t.Fatalf("the object is %v, %v", object, err)
		}
		if age := time.Since(object.CreationTimestamp.Time); age < 0 || age > time.Minute {
			t.Errorf("it is %s old", age)
		}
	})
}
