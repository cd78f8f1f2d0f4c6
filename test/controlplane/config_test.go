package controlplane

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestConfiguration checks that the controllers and the scheduler apply upstream's configuration files, and that flags override
// these.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	manager := write(t, `apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1
kind: KubeControllerManagerConfiguration
KubeCloudShared:
  AllocateNodeCIDRs: true
  ClusterCIDR: 10.32.0.0/16
  UseServiceAccountCredentials: false
NodeIPAMController:
  NodeCIDRMaskSize: 26
`)
	scheduler := write(t, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: packs
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
`)
	s := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t), Args: []string{
		"--controllers=*", "--scheduler", "--controller-manager-config", manager, "--node-cidr-mask-size=25", "--scheduler-config", scheduler,
	}})
	c := client(t, s)
	fakenode.Join(t, s.Config(t), simnodes.Options{Names: []string{"board"}})
	harness.Eventually(t, "the node has ranges of the file's and of the flag's size", func() bool {
		node, err := c.CoreV1().Nodes().Get(t.Context(), "board", metav1.GetOptions{})
		return err == nil && node.Spec.PodCIDR == "10.32.0.0/25"
	})
	deploy(t, c, "web", 1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "packed"}, Spec: template("packed", "10m", nil).Spec}
	pod.Spec.SchedulerName = "packs"
	if _, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the file's other scheduler has bound the Pod", func() bool {
		pod, err := c.CoreV1().Pods("default").Get(t.Context(), "packed", metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName == "board"
	})
	s.Stop(t)
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	harness.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestComponentStatuses checks that what runs in the process is healthy, and that what does not is looked for beside it.
func TestComponentStatuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want map[string]corev1.ConditionStatus
	}{
		{[]string{"--control-plane"}, map[string]corev1.ConditionStatus{"controller-manager": corev1.ConditionTrue, "scheduler": corev1.ConditionTrue}},
		{[]string{"--scheduler"}, map[string]corev1.ConditionStatus{"controller-manager": corev1.ConditionFalse, "scheduler": corev1.ConditionTrue}},
	} {
		s := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t), Args: test.args})
		list, err := client(t, s).CoreV1().ComponentStatuses().List(t.Context(), metav1.ListOptions{})
		harness.Must(t, err)
		got := map[string]corev1.ConditionStatus{}
		for _, component := range list.Items {
			for _, condition := range component.Conditions {
				got[component.Name] = condition.Status
			}
		}
		if !maps.Equal(got, test.want) {
			t.Errorf("%v: %v, want %v", test.args, got, test.want)
		}
		s.Stop(t)
	}
}

// TestControllersAreNamed checks whom `sqube history` names for what controllers, the scheduler and the server itself write.
func TestControllersAreNamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		database   func(testing.TB) string
		flags      []string
		controller func(name string) string
	}{
		{harness.Postgres, nil, func(name string) string { return "system:serviceaccount:kube-system:" + name }},
		{harness.SQLite, []string{"--use-service-account-credentials=false"}, func(string) string { return "system:apiserver" }},
	} {
		datastore := test.database(t)
		s := sqube.Start(t, sqube.Options{Datastore: datastore, Args: append(test.flags, "--control-plane")})
		c := client(t, s)
		fakenode.Join(t, s.Config(t), simnodes.Options{Names: []string{"board"}})
		deploy(t, c, "web", 1)
		finds(t, c, "web", 1)
		pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil || len(pods.Items) != 1 {
			t.Fatalf("%v, %v", pods, err)
		}
		named := func(resource, name, operation string, users ...string) {
			t.Helper()
			want := regexp.MustCompile(`(?m)^\d+ +\S+ +` + operation + ` +(` + strings.Join(users, "|") + `) `)
			harness.Eventually(t, operation+" by "+strings.Join(users, " or "), func() bool {
				return want.MatchString(printed(t, "history", resource, name, "--datastore", datastore))
			})
		}
		collects(t, s.Config(t))
		owner := pods.Items[0].OwnerReferences[0].Name
		named("replicasets.apps", owner, "create", test.controller("deployment-controller"))
		named("pods", pods.Items[0].Name, "create", test.controller("replicaset-controller"))
		named("pods", pods.Items[0].Name, "update", "system:kube-scheduler")
		named("serviceaccounts", "default", "create", test.controller("service-account-controller"))
		named("configmaps", "kube-root-ca.crt", "create", test.controller("root-ca-cert-publisher"))

		people := printed(t, "history", "deploy/web", "--no-controllers", "--datastore", datastore)
		if all := printed(t, "history", "deploy/web", "--datastore", datastore); strings.Count(people, "\n") != 2 || strings.Count(all, "\n") < 4 {
			t.Errorf("without controllers, the history is\n%sof\n%s", people, all)
		}

		named("endpoints", "web", "create", test.controller("endpoint-controller"))
		harness.Must(t, c.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		// Both the request that deletes the Service and the controller that sees it go delete them: the first one is named.
		named("endpoints", "web", "delete", "system:apiserver", test.controller("endpoint-controller"))
		undeploy(t, c, "web")
		named("replicasets.apps", owner, "delete", test.controller("generic-garbage-collector"))
		s.Stop(t)
	}
}
