package virtual

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record/util"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// TestSimultaneousEvents creates Events about one object at one moment, of which client-go makes their names. None is lost; one that a client
// sends again is there once.
func TestSimultaneousEvents(t *testing.T) {
	inBubble(t, servertest.Options{NoControllers: true}, func(t *testing.T, _ *servertest.Server, c kubernetes.Interface) {
		about := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "settings"}
		name := util.GenerateEventName(about.Name, time.Now().UnixNano())
		create := func(message string) error {
			_, err := c.CoreV1().Events(about.Namespace).Create(t.Context(), &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: about.Namespace},
				InvolvedObject: about, Reason: "Tested", Message: message, Type: corev1.EventTypeNormal,
			}, metav1.CreateOptions{})
			return err
		}
		for _, message := range []string{"first", "second", "third"} {
			harness.Must(t, create(message))
		}
		if err := create("first"); !apierrors.IsAlreadyExists(err) {
			t.Errorf("an Event that is sent again: %v", err)
		}
		list, err := c.CoreV1().Events(about.Namespace).List(t.Context(), metav1.ListOptions{})
		harness.Must(t, err)
		var messages []string
		for i := range list.Items {
			messages = append(messages, list.Items[i].Message)
		}
		if len(messages) != 3 {
			t.Errorf("the Events are %q", messages)
		}
	})
}
