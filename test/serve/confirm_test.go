package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// transaction is what clients see of one.
type transaction struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		State       string       `json:"state"`
		Deadline    *metav1.Time `json:"deadline"`
		ConfirmedBy string       `json:"confirmedBy"`
		TakenBackBy string       `json:"takenBackBy"`
		Message     string       `json:"message"`
		Left        []struct {
			Kind, Name, Reason string
		} `json:"left"`
	} `json:"status"`
}

const transactionsPath = "/apis/history.sqube.io/v1alpha1/transactions"

// operationOf is one of a transaction.
func operationOf(verb string, field string, value any) map[string]any {
	return map[string]any{"verb": verb, field: value}
}

func configMap(namespace, name, value string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": namespace, "name": name}, "data": map[string]any{"value": value}}
}

// setsValue is an operation that sets the value of a ConfigMap.
func setsValue(namespace, name, value string) map[string]any {
	return map[string]any{
		"verb": "patch", "patch": map[string]any{"data": map[string]any{"value": value}},
		"target": map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name},
	}
}

// submit creates a transaction.
func submit(t *testing.T, c kubernetes.Interface, name string, spec map[string]any) (made transaction, err error) {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": "history.sqube.io/v1alpha1", "kind": "Transaction", "metadata": map[string]any{"name": name}, "spec": spec,
	})
	harness.Must(t, err)
	result := c.CoreV1().RESTClient().Post().AbsPath(transactionsPath).Body(body).SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Do(t.Context())
	if err = result.Error(); err == nil {
		answer, err := result.Raw()
		harness.Must(t, err)
		harness.Must(t, json.Unmarshal(answer, &made))
	}
	return made, err
}

// transactionOf returns a transaction.
func transactionOf(c kubernetes.Interface, t *testing.T, name string) (found transaction, err error) {
	answer, err := c.CoreV1().RESTClient().Get().AbsPath(transactionsPath, name).Do(t.Context()).Raw()
	if err == nil {
		err = json.Unmarshal(answer, &found)
	}
	return found, err
}

// confirm confirms a transaction.
func confirm(t *testing.T, c kubernetes.Interface, name string) error {
	body := `{"apiVersion":"history.sqube.io/v1alpha1","kind":"Transaction"}`
	return c.CoreV1().RESTClient().Post().AbsPath(transactionsPath, name, "confirm").Body([]byte(body)).SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Do(t.Context()).Error()
}

// settled waits until a transaction has a state, and returns it.
func settled(t *testing.T, c kubernetes.Interface, name, state string) (found transaction) {
	t.Helper()
	harness.Retry(t, name+" is "+state, func() (err error) {
		if found, err = transactionOf(c, t, name); err == nil && found.Status.State != state {
			err = fmt.Errorf("it is %+v", found.Status)
		}
		return err
	})
	return found
}

// valueOf returns the value of a ConfigMap, "none" if there is no such ConfigMap.
func valueOf(t *testing.T, c kubernetes.Interface, namespace, name string) string {
	t.Helper()
	found, err := c.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "none"
	}
	harness.Must(t, err)
	return found.Data["value"]
}

func makeValue(t *testing.T, c kubernetes.Interface, namespace, name, value string) {
	t.Helper()
	_, err := c.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
}

func setValue(t *testing.T, c kubernetes.Interface, namespace, name, value string) {
	t.Helper()
	_, err := c.CoreV1().ConfigMaps(namespace).Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":%q}}`, value), metav1.PatchOptions{})
	harness.Must(t, err)
}

// TestUnconfirmed has the server take back transactions that nobody confirms, even if it was killed meanwhile.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		args := []string{"--datastore", engine.Datastore, "--pki-encryption-key-file", sqube.KeyFile(t)}
		s := serve(t, args)
		c := client(t, s.Kubeconfig)
		makeNamespace(t, c, "shop")
		for _, name := range []string{"changed", "others", "deleted", "confirmed", "twice"} {
			makeValue(t, c, "shop", name, "good")
		}
		_, err := submit(t, c, "kept", map[string]any{"confirmWithin": "10m", "operations": []any{setsValue("shop", "confirmed", "new")}})
		harness.Must(t, err)
		harness.Must(t, confirm(t, c, "kept"))
		harness.Must(t, confirm(t, c, "kept")) // again, as after a lost answer
		_, err = submit(t, c, "ruin", map[string]any{"confirmWithin": "6s", "operations": []any{
			setsValue("shop", "changed", "ruined"), setsValue("shop", "others", "ruined"), setsValue("shop", "twice", "ruined"),
			operationOf("create", "object", configMap("shop", "created", "new")),
			operationOf("delete", "target", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "deleted"}),
		}})
		harness.Must(t, err)
		setValue(t, c, "shop", "others", "mended")
		later, err := submit(t, c, "later", map[string]any{"confirmWithin": "8s", "operations": []any{setsValue("shop", "twice", "worse")}})
		harness.Must(t, err)
		if later.Status.State != "Unconfirmed" || later.Status.Deadline == nil {
			t.Errorf("the answer has %+v", later.Status)
		}
		shopkeeper := (&undone{s.Kubeconfig, ""}).as(t, "shopkeeper", "system:masters")
		for _, name := range []string{"own-1", "own-2"} {
			_, err = submit(t, client(t, shopkeeper), name, map[string]any{"confirmWithin": "10m", "operations": []any{setsValue("shop", "confirmed", name)}})
			harness.Must(t, err)
		}
		for _, listed := range []string{kubectlPrints(t, shopkeeper, "get", "transactions"), succeeds(t, []string{"changes", "--unconfirmed", "--kubeconfig", shopkeeper})} {
			for _, line := range []string{`ruin +kubernetes-admin +\S+ +5 +Unconfirmed +\S+`, `own-2 +shopkeeper +\S+ +1 +Unconfirmed +\S+`} {
				if !regexp.MustCompile(line).MatchString(listed) || strings.Contains(listed, "kept") {
					t.Errorf("waiting are\n%s\nwant a line like %s and none of kept", listed, line)
				}
			}
		}
		if got, want := succeeds(t, []string{"confirm", "--all", "--kubeconfig", shopkeeper}), "own-1 is confirmed\nown-2 is confirmed\n"; got != want {
			t.Errorf("sqube confirm --all prints %q, want %q", got, want)
		}
		harness.Retry(t, "the metrics say what waits", func() error {
			if text := sqube.Metrics(t, c); !strings.Contains(text, "\nsqube_transactions_unconfirmed 2\n") {
				return errors.New("sqube_transactions_unconfirmed is not 2")
			}
			return nil
		})
		var another *sqube.Server // which goes on
		if engine.Name == "postgres" {
			another = serve(t, args)
		}
		s.Kill(t)
		if another == nil {
			another = serveAgain(t, s, args)
		}
		s = another
		c = client(t, s.Kubeconfig)

		ruin := settled(t, c, "ruin", "TakenBack")
		settled(t, c, "later", "TakenBack")
		for name, want := range map[string]string{"changed": "good", "others": "mended", "deleted": "good", "created": "none", "confirmed": "own-2", "twice": "good"} {
			if got := valueOf(t, c, "shop", name); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		var left []string
		for _, l := range ruin.Status.Left {
			left = append(left, l.Name+": "+l.Reason)
		}
		if text := strings.Join(left, "\n"); !strings.Contains(text, "others: others have changed the same fields since") {
			t.Errorf("left are %s, want others, which was changed since", text)
		}
		if kept := settled(t, c, "kept", "Confirmed"); kept.Status.ConfirmedBy == "" {
			t.Errorf("kept has %+v", kept.Status)
		}
		if err := confirm(t, c, "ruin"); !apierrors.IsConflict(err) {
			t.Errorf("confirming what was taken back: %v, want a conflict", err)
		}
		harness.Retry(t, "Events tell what became of them", func() error {
			events, err := c.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Transaction"})
			harness.Must(t, err)
			reasons := map[string]bool{}
			for _, e := range events.Items {
				reasons[e.InvolvedObject.Name+" "+e.Reason] = true
			}
			for _, want := range []string{"ruin Unconfirmed", "ruin TakenBack", "kept Confirmed"} {
				if !reasons[want] {
					return fmt.Errorf("there is none of %s but %v", want, reasons)
				}
			}
			return nil
		})
		changes := kubectlPrints(t, s.Kubeconfig, "get", "changes", "-n", "shop", "-o", "wide")
		if !strings.Contains(changes, ruin.Status.TakenBackBy) {
			t.Errorf("history has no transaction %s:\n%s", ruin.Status.TakenBackBy, changes)
		}
	})
}

// TestUnstoppable has the server take back a transaction with what would forbid that, a policy and a quota, and one of whose objects somebody
// writes all the time.
func TestUnstoppable(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := client(t, s.Kubeconfig)
	makeNamespace(t, c, "shop")
	makeValue(t, c, "shop", "changed", "good")
	makeValue(t, c, "shop", "deleted", "good")
	makeNamespace(t, c, "busy")
	makeValue(t, c, "busy", "written", "good")
	_, err := submit(t, c, "written", map[string]any{"confirmWithin": "1s", "operations": []any{setsValue("busy", "written", "ruined")}})
	harness.Must(t, err)
	stop, stopped := make(chan struct{}), make(chan struct{})
	for range 4 {
		go func() {
			defer func() { stopped <- struct{}{} }()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				patch := fmt.Appendf(nil, `{"data":{"count":"%d"}}`, i)
				if _, err := c.CoreV1().ConfigMaps("busy").Patch(t.Context(), "written", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	settled(t, c, "written", "TakenBack")
	close(stop)
	for range 4 {
		<-stopped
	}
	large := strings.Repeat("x", 1<<20-1000)
	var deletions []any
	for i := range 70 { // more than one undo may hold
		name := fmt.Sprintf("large-%d", i)
		makeValue(t, c, "busy", name, large)
		deletions = append(deletions, operationOf("delete", "target", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "busy", "name": name}))
	}
	_, err = submit(t, c, "large", map[string]any{"confirmWithin": "1s", "operations": deletions})
	harness.Must(t, err)
	settled(t, c, "large", "TakenBack")
	for i := range deletions {
		if got := valueOf(t, c, "busy", fmt.Sprintf("large-%d", i)); got != large {
			t.Errorf("large-%d has %d bytes, want %d", i, len(got), len(large))
		}
	}
	if got := valueOf(t, c, "busy", "written"); got != "good" {
		t.Errorf("what is written all the time is %s, want good", got)
	}
	object := func(apiVersion, kind, name string, spec map[string]any) map[string]any {
		metadata := map[string]any{"name": name}
		if kind == "ResourceQuota" {
			metadata["namespace"] = "shop"
		}
		return operationOf("create", "object", map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata, "spec": spec})
	}
	const admission = "admissionregistration.k8s.io/v1"
	_, err = submit(t, c, "ruin", map[string]any{"confirmWithin": "4s", "operations": []any{
		setsValue("shop", "changed", "ruined"),
		operationOf("delete", "target", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "deleted"}),
		object("v1", "ResourceQuota", "none", map[string]any{"hard": map[string]any{"count/configmaps": "0"}}),
		object(admission, "ValidatingAdmissionPolicy", "never", map[string]any{
			"failurePolicy": "Fail", "validations": []any{map[string]any{"expression": "false", "message": "never"}},
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"configmaps"}, "operations": []any{"CREATE", "UPDATE", "DELETE"},
			}}},
		}),
		object(admission, "ValidatingAdmissionPolicyBinding", "never", map[string]any{"policyName": "never", "validationActions": []any{"Deny"}}),
	}})
	harness.Must(t, err)
	harness.Retry(t, "the policy is in force", func() error {
		_, err := c.CoreV1().ConfigMaps("shop").Patch(t.Context(), "changed", types.MergePatchType, []byte(`{"data":{"value":"ruined"}}`), metav1.PatchOptions{DryRun: []string{"All"}})
		if err == nil {
			return errors.New("a write is allowed")
		}
		return nil
	})
	settled(t, c, "ruin", "TakenBack")
	if got := valueOf(t, c, "shop", "changed") + " " + valueOf(t, c, "shop", "deleted"); got != "good good" {
		t.Errorf("the values are %s, want good good", got)
	}
}

// TestRuin has the server take back what an agent does to 10,000 objects within a minute, and says how long after the deadline that was done.
func TestRuin(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, []string{"--datastore", engine.Datastore})
		c := client(t, s.Kubeconfig)
		batches, each := 10, 1000
		if engine.Name == "postgres" { // where it is the same, on fewer
			batches = 2
		}
		makeNamespace(t, c, "ruined")
		batch := func(i int, of func(name string) map[string]any) (all []any) {
			for j := range each {
				all = append(all, of(fmt.Sprintf("c-%d-%d", i, j)))
			}
			return all
		}
		for i := range batches {
			_, err := submit(t, c, fmt.Sprintf("made-%d", i), map[string]any{"operations": batch(i, func(name string) map[string]any {
				return operationOf("create", "object", configMap("ruined", name, "good"))
			})})
			harness.Must(t, err)
		}
		var last transaction
		for i := range batches {
			var err error
			last, err = submit(t, c, fmt.Sprintf("ruin-%d", i), map[string]any{"confirmWithin": "5s", "operations": batch(i, func(name string) map[string]any {
				return setsValue("ruined", name, "ruined")
			})})
			harness.Must(t, err)
		}
		for i := range batches {
			settled(t, c, fmt.Sprintf("ruin-%d", i), "TakenBack")
		}
		t.Logf("taken back %v after the last deadline", time.Since(last.Status.Deadline.Time))
		all, err := c.CoreV1().ConfigMaps("ruined").List(t.Context(), metav1.ListOptions{})
		harness.Must(t, err)
		good := 0
		for _, item := range all.Items {
			if item.Data["value"] == "good" {
				good++
			}
		}
		if good != batches*each {
			t.Errorf("%d objects are as they were, want %d", good, batches*each)
		}
	})
}

// TestUnlessHealthy confirms what is healthy at its deadline, and takes back the rest.
func TestUnlessHealthy(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := client(t, s.Kubeconfig)
	makeNamespace(t, c, "shop")
	makeValue(t, c, "shop", "config", "good")
	deployment := func(name string) map[string]any {
		labels := map[string]any{"app": name}
		return map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "shop", "name": name},
			"spec": map[string]any{"selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
				"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web"}}},
			}},
		}
	}
	rolledOut := func(name string) map[string]any {
		return map[string]any{
			"verb": "patch", "subresource": "status", "target": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name},
			"patch": map[string]any{"status": map[string]any{"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}},
		}
	}
	healthy := func(name string, operations ...any) {
		t.Helper()
		_, err := submit(t, c, name, map[string]any{"confirmWithin": "1s", "unlessHealthy": true, "operations": operations})
		harness.Must(t, err)
	}
	healthy("healthy", setsValue("shop", "config", "new"), operationOf("create", "object", deployment("healthy")), rolledOut("healthy"))
	healthy("stuck", operationOf("create", "object", deployment("stuck")))
	if found := settled(t, c, "healthy", "Confirmed"); found.Status.ConfirmedBy != "health" {
		t.Errorf("what is healthy has %+v", found.Status)
	}
	if found := settled(t, c, "stuck", "TakenBack"); !strings.Contains(found.Status.Message, "Deployment shop/stuck: 0 of 1 replicas updated") {
		t.Errorf("what has not rolled out has the message %q", found.Status.Message)
	}

	owner, err := c.AppsV1().Deployments("shop").Get(t.Context(), "healthy", metav1.GetOptions{})
	harness.Must(t, err)
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "healthy-1", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("Deployment"))}}}
	set.Spec.Selector, set.Spec.Template = owner.Spec.Selector, owner.Spec.Template
	set, err = c.AppsV1().ReplicaSets("shop").Create(t.Context(), set, metav1.CreateOptions{})
	harness.Must(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "healthy-1-a", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}}}
	pod.Spec = owner.Spec.Template.Spec
	pod, err = c.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{})
	harness.Must(t, err)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	_, err = c.CoreV1().Pods("shop").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	harness.Must(t, err)
	healthy("crashing", map[string]any{
		"verb": "patch", "target": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "healthy"},
		"patch": map[string]any{"metadata": map[string]any{"labels": map[string]any{"changed": "yes"}}},
	})
	if found := settled(t, c, "crashing", "TakenBack"); !strings.Contains(found.Status.Message, "Pod shop/healthy-1-a: CrashLoopBackOff") {
		t.Errorf("what crashes has the message %q", found.Status.Message)
	}
}

// TestConfirmCommands gives transactions of sqube apply and sqube tx deadlines.
func TestConfirmCommands(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := client(t, s.Kubeconfig)
	makeNamespace(t, c, "shop")
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(value string) {
		harness.Must(t, os.WriteFile(file, fmt.Appendf(nil, "{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: shop}, data: {value: %s}}\n", value), 0o600))
	}
	write("new")
	_, stderr, code := sqube.Run(t, []string{"apply", "-f", file, "--confirm-within", "10m", "--name", "release", "--kubeconfig", s.Kubeconfig})
	if code != 0 || !regexp.MustCompile(`To keep this, confirm it by [0-9:]{8}: sqube confirm release\n`).MatchString(stderr) {
		t.Errorf("sqube apply ended with %d and wrote %s", code, stderr)
	}
	if got := succeeds(t, []string{"confirm", "release", "--kubeconfig", s.Kubeconfig}); got != "release is confirmed\n" {
		t.Errorf("sqube confirm printed %q", got)
	}
	_, stderr, code = sqube.Run(t, []string{"tx", "--confirm-within", "1s", "--name", "script", "--kubeconfig", s.Kubeconfig, "--",
		sqube.KubectlBinary(t), "patch", "configmap", "config", "-n", "shop", "--type", "merge", "-p", `{"data":{"value":"ruined"}}`})
	if code != 0 {
		t.Errorf("sqube tx ended with %d and wrote %s", code, stderr)
	}
	settled(t, c, "script", "TakenBack")
	if got := valueOf(t, c, "shop", "config"); got != "new" {
		t.Errorf("the ConfigMap is %s, want new", got)
	}
	write("newer")
	shell := fmt.Sprintf("%s apply -f %s --confirm-within 10m --name key --kubeconfig %s", sqube.Binary(t), file, s.Kubeconfig)
	cmd := exec.CommandContext(t.Context(), "script", "-qec", shell, "/dev/null") // on a terminal
	cmd.Stdin = strings.NewReader("y")
	if text, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(text), "key is confirmed") {
		t.Errorf("with a key: %v\n%s", err, text)
	}
}
