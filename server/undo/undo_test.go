package undo_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/undo"
)

var server *servertest.Server

func TestMain(m *testing.M) {
	var err error
	if server, err = servertest.Start(servertest.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// as returns a client of a user, and the configuration.
func as(t *testing.T, name string, groups ...string) (*kubernetes.Clientset, *rest.Config) {
	t.Helper()
	config, err := server.User(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(config), config
}

// administrator is a user in system:masters.
func administrator(t *testing.T, name string) (*kubernetes.Clientset, *rest.Config) {
	return as(t, name, "system:masters")
}

// try posts an undo.
func try(t *testing.T, config *rest.Config, spec undo.Spec) (*undo.Status, error) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"apiVersion": "history.sqube.io/v1alpha1", "kind": "Undo", "spec": spec})
	must(t, err)
	result := kubernetes.NewForConfigOrDie(config).RESTClient().Post().AbsPath("/apis/history.sqube.io/v1alpha1/undos").
		SetHeader("Accept", "application/json").SetHeader("Content-Type", "application/json").Body(body).Do(t.Context())
	if err := result.Error(); err != nil {
		return nil, err
	}
	answer, err := result.Raw()
	must(t, err)
	var u undo.Undo
	must(t, json.Unmarshal(answer, &u))
	return &u.Status, nil
}

func do(t *testing.T, config *rest.Config, spec undo.Spec) *undo.Status {
	t.Helper()
	status, err := try(t, config, spec)
	must(t, err)
	return status
}

// told returns the steps, one per line.
func told(s *undo.Status) string {
	var lines []string
	for _, step := range s.Plan {
		line := strings.TrimSpace(fmt.Sprintf("%s %s %s %s", step.Action, step.Object.Kind, step.Object.Name, step.Result))
		for _, text := range []string{step.Reason, step.Message} {
			if text != "" {
				line += ": " + text
			}
		}
		for _, d := range step.Diff {
			line += fmt.Sprintf(" | %s %s → %s", d.Path, d.From, d.To)
		}
		for _, c := range step.Conflicts {
			line += fmt.Sprintf(" | conflict %s by %s", c.Path, c.Change.User)
			if c.Forced {
				line += " forced"
			}
		}
		for _, w := range step.Warnings {
			line += " | warning: " + w
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func says(t *testing.T, s *undo.Status, want ...string) {
	t.Helper()
	if got := told(s); got != strings.Join(want, "\n") {
		t.Errorf("the plan is\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func revision(t *testing.T, o metav1.Object) int64 {
	t.Helper()
	n, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	must(t, err)
	return n
}

func one(n int64) *undo.ChangeSelector {
	return &undo.ChangeSelector{AfterRevision: n - 1, BeforeRevision: n + 1}
}

// namespace makes a namespace of the test.
func namespace(t *testing.T, c kubernetes.Interface) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	return name
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain waited until %s", what)
		}
	}
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("app:1", "proxy:1")},
	}}
}

func pod(images ...string) (spec corev1.PodSpec) {
	for _, image := range images {
		name, _, _ := strings.Cut(image, ":")
		spec.Containers = append(spec.Containers, corev1.Container{Name: name, Image: image})
	}
	return spec
}

// TestWrongImage takes back one change of a Deployment, to which others have changed other fields, and then the same one.
func TestWrongImage(t *testing.T) {
	t.Parallel()
	jane, _ := administrator(t, "jane")
	joe, config := administrator(t, "joe")
	ns := namespace(t, jane)
	_, err := jane.AppsV1().Deployments(ns).Create(t.Context(), deployment("web"), metav1.CreateOptions{})
	must(t, err)
	patch := func(c *kubernetes.Clientset, body string) int64 {
		d, err := c.AppsV1().Deployments(ns).Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "patcher"})
		must(t, err)
		return revision(t, d)
	}
	image := func(name string) string {
		return `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"` + name + `"}]}}}}`
	}
	wrong := patch(jane, image("app:wrong"))
	patch(joe, `{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"proxy","image":"proxy:2"}]}}}}`)

	spec := undo.Spec{Changes: one(wrong)}
	const field = `.spec.template.spec.containers[name=app].image`
	says(t, do(t, config, spec), `update Deployment web | `+field+` "app:wrong" → "app:1"`)
	now, err := joe.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	if got := now.Spec.Template.Spec.Containers[0].Image; got != "app:wrong" {
		t.Errorf("a plan has changed the image to %s", got)
	}
	spec.Apply = true
	says(t, do(t, config, spec), `update Deployment web done | `+field+` "app:wrong" → "app:1"`)
	now, err = joe.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	if c := now.Spec.Template.Spec.Containers; c[0].Image != "app:1" || c[1].Image != "proxy:2" || *now.Spec.Replicas != 3 {
		t.Errorf("the Deployment has %s, %s and %d replicas", c[0].Image, c[1].Image, *now.Spec.Replicas)
	}
	if !slices.ContainsFunc(now.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == undo.Manager }) {
		t.Errorf("the managers are %v", now.ManagedFields)
	}
	says(t, do(t, config, spec), `leave Deployment web: nothing to do: it is as it was`)

	patch(joe, image("app:2"))
	says(t, do(t, config, spec), `leave Deployment web: others have changed the same fields since | conflict `+field+` by joe`)
	spec.Force = true
	says(t, do(t, config, spec), `update Deployment web done | `+field+` "app:2" → "app:1" | conflict `+field+` by joe forced`)

	// To a moment, all of it goes back.
	says(t, do(t, config, undo.Spec{Object: &undo.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: ns, Name: "web"}, To: &undo.Moment{Before: wrong}}),
		`update Deployment web | .spec.replicas 3 → 1 | .spec.template.spec.containers[name=proxy].image "proxy:2" → "proxy:1"`)
}

// TestDeletedNamespace brings back a namespace with everything in it, stops in the middle, goes on, and then takes that back.
func TestDeletedNamespace(t *testing.T) {
	t.Parallel()
	c, config := administrator(t, "anne")
	ns := namespace(t, c)
	before := fill(t, c, ns)
	must(t, c.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}))
	eventually(t, "the namespace is gone", func() bool {
		_, err := c.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})

	spec := undo.Spec{Object: &undo.ObjectReference{Kind: "Namespace", Name: ns}, Apply: true}
	status := do(t, config, spec)
	if !status.Complete {
		t.Fatalf("not complete:\n%s", told(status))
	}
	created := map[string]int{}
	for _, step := range status.Plan {
		if step.Action == undo.Create {
			created[step.Object.Kind]++
		}
	}
	want := map[string]int{"Namespace": 1, "ConfigMap": 480, "Secret": 10, "Deployment": 1, "Service": 1, "ServiceAccount": 1, "Role": 1, "RoleBinding": 1, "PersistentVolumeClaim": 1, "Pod": 1}
	if fmt.Sprint(created) != fmt.Sprint(want) {
		t.Errorf("it creates %v, want %v", created, want)
	}
	text := told(status)
	for _, want := range []string{
		"ServiceAccount default: a controller makes it", "ConfigMap kube-root-ca.crt: a controller makes it", "leave ReplicaSet web-1: Deployment web makes it", "leave Pod web-1-a: ReplicaSet web-1 makes it",
		"create PersistentVolumeClaim data done | warning: its volume gone is gone, and the data with it: it comes back empty",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan does not say %q:\n%s", want, text)
		}
	}
	after(t, c, ns, before)
	says := do(t, config, spec)
	for _, step := range says.Plan {
		if step.Action != undo.Leave {
			t.Errorf("again, it would %s %s %s", step.Action, step.Object.Kind, step.Object.Name)
		}
	}

	back := do(t, config, undo.Spec{Apply: true, Changes: &undo.ChangeSelector{
		FieldManager: undo.Manager, AfterRevision: status.Applied.AfterRevision, BeforeRevision: status.Applied.BeforeRevision, User: "anne",
	}})
	if !back.Complete || !strings.HasSuffix(text[:strings.Index(text, "\n")], "Namespace "+ns+" done") {
		t.Errorf("the undo is undone by\n%s", told(back))
	}
	eventually(t, "the namespace is gone again", func() bool {
		_, err := c.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
