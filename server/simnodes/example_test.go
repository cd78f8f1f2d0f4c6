package simnodes_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/simnodes"
)

// A container fails once and is restarted. Tests use servertest.Run and its method Nodes instead, which stop by themselves.
func Example() {
	ctx := context.Background()
	s, err := servertest.Start(servertest.Options{NoControllers: true})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Stop()
	nodes, err := simnodes.Join(ctx, s.Config, simnodes.Options{Scripts: []simnodes.Script{{Labels: "app=import", Runs: []simnodes.Run{
		{simnodes.Log("no database"), simnodes.Exit(1)},
		{simnodes.Log("imported 3 rows"), simnodes.Exit(0)},
	}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer nodes.Stop()

	pods := kubernetes.NewForConfigOrDie(s.Config).CoreV1().Pods("default")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "import", Labels: map[string]string{"app": "import"}},
		Spec: corev1.PodSpec{
			NodeName: "node-0", RestartPolicy: corev1.RestartPolicyOnFailure, Containers: []corev1.Container{{Name: "main", Image: "import:1"}},
		},
	}
	events, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", pod.Name).String()})
	if err != nil {
		log.Fatal(err)
	}
	defer events.Stop()
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	for event := range events.ResultChan() {
		if pod := event.Object.(*corev1.Pod); pod.Status.Phase == corev1.PodSucceeded {
			fmt.Println(pod.Status.Phase, "after", pod.Status.ContainerStatuses[0].RestartCount, "restart")
			break
		}
	}
	text, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", text)
	// Output:
	// Succeeded after 1 restart
	// imported 3 rows
}
