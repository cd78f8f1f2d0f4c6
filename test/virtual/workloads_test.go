package virtual

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
)

// TestCronJobWeek runs a CronJob every hour for a week. Each Job takes ten minutes, and every third one fails.
func TestCronJobWeek(t *testing.T) {
	selected := controlplane.With("--controllers=serviceaccount-controller,cronjob-controller,job-controller,ttl-after-finished-controller,garbage-collector-controller")
	inBubble(t, servertest.Options{ControlPlane: selected}, func(t *testing.T, s *servertest.Server, c kubernetes.Interface) {
		started := 0
		s.Nodes(t, simnodes.Options{Scripts: []simnodes.Script{
			{Match: func(*corev1.Pod) bool { started++; return started%3 == 0 }, Runs: []simnodes.Run{{simnodes.Wait(10 * time.Minute), simnodes.Exit(1)}}},
			{Runs: []simnodes.Run{{simnodes.Wait(10 * time.Minute), simnodes.Exit(0)}}},
		}})
		job := batchv1.JobSpec{
			Template: template(nil, corev1.RestartPolicyNever), BackoffLimit: ptr.To[int32](0), TTLSecondsAfterFinished: ptr.To[int32](5 * 3600),
		}
		cron, err := c.BatchV1().CronJobs("default").Create(t.Context(), &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Name: "hourly"},
			Spec: batchv1.CronJobSpec{
				Schedule: "0 * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: job},
				SuccessfulJobsHistoryLimit: ptr.To[int32](3), FailedJobsHistoryLimit: ptr.To[int32](10),
			},
		}, metav1.CreateOptions{})
		harness.Must(t, err)
		time.Sleep(7*24*time.Hour + 30*time.Minute)

		if started != 7*24 {
			t.Errorf("%d Pods ran in a week", started)
		}
		jobs, err := c.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
		harness.Must(t, err)
		var succeeded, failed int
		for _, job := range jobs.Items {
			succeeded += int(job.Status.Succeeded)
			failed += int(job.Status.Failed)
			if age := time.Since(job.CreationTimestamp.Time); age > 6*time.Hour {
				t.Errorf("%s is still there after %s", job.Name, age)
			}
		}
		if succeeded != 3 || failed != 2 { // the limit, and what the Jobs' own time to live has left
			t.Errorf("there are %d succeeded and %d failed Jobs", succeeded, failed)
		}
		if cron, err = c.BatchV1().CronJobs("default").Get(t.Context(), cron.Name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if since := time.Since(cron.Status.LastScheduleTime.Time); since > time.Hour {
			t.Errorf("the last Job was made %s ago", since)
		}
	})
}

// TestSilentNode has a node that falls silent. Its Pod is evicted after five minutes, and runs elsewhere.
func TestSilentNode(t *testing.T) {
	inBubble(t, servertest.Options{ControlPlane: controlplane.All}, func(t *testing.T, s *servertest.Server, c kubernetes.Interface) {
		nodes := s.Nodes(t, simnodes.Options{Count: 2})
		deploy(t, c, 1, nil)
		var lost string
		running := func(ctx context.Context) (bool, error) {
			pods, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for _, pod := range pods.Items {
				if pod.Status.Phase == corev1.PodRunning && pod.Spec.NodeName != lost {
					lost = pod.Spec.NodeName
					return true, nil
				}
			}
			return false, nil
		}
		within(t, time.Minute, time.Second, "the Pod runs", running)
		first := lost
		nodes.Silence(first)
		took := within(t, time.Hour, time.Second, "the Pod runs elsewhere", running)
		if took < 5*time.Minute || took > 8*time.Minute {
			t.Errorf("the Pod of a silent node runs elsewhere after %s", took)
		}
		node, err := c.CoreV1().Nodes().Get(t.Context(), first, metav1.GetOptions{})
		harness.Must(t, err)
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionUnknown {
				t.Errorf("the node is ready: %s", condition.Status)
			}
		}
	})
}

// TestProgressDeadline has a Deployment whose Pods never become ready.
func TestProgressDeadline(t *testing.T) {
	inBubble(t, servertest.Options{ControlPlane: controlplane.All}, func(t *testing.T, s *servertest.Server, c kubernetes.Interface) {
		s.Nodes(t, simnodes.Options{Scripts: []simnodes.Script{{Runs: []simnodes.Run{{simnodes.Unready()}}}}})
		made := deploy(t, c, 2, ptr.To[int32](600))
		took := within(t, time.Hour, time.Second, "the Deployment gives up", func(ctx context.Context) (bool, error) {
			now, err := c.AppsV1().Deployments("default").Get(ctx, made.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for _, condition := range now.Status.Conditions {
				if condition.Type == appsv1.DeploymentProgressing && condition.Reason == "ProgressDeadlineExceeded" {
					return true, nil
				}
			}
			return false, nil
		})
		if took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("the Deployment gives up after %s", took)
		}
	})
}

// deploy makes a Deployment.
func deploy(t *testing.T, c kubernetes.Interface, replicas int32, deadline *int32) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": "web"}
	made, err := c.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, ProgressDeadlineSeconds: deadline,
			Template: template(labels, corev1.RestartPolicyAlways),
		},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	return made
}
