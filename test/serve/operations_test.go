package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/everykind"
)

// TestOperations makes transactions whose operations need what the ones before them have written.
func TestOperations(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		flags, log := auditFlags(t)
		s := serve(t, slices.Concat([]string{"--datastore", engine.Datastore}, flags, everykind.MoreFlags))
		f := &operated{client(t, s.Kubeconfig), s.Kubeconfig, log}
		tests := map[string]func(*testing.T){"quota": f.quota, "services": f.services, "together": f.together, "deletions": f.deletions, "kinds": f.kinds, "contended": f.contended}
		if engine.Name == "sqlite" { // the others are about what is on top of the store
			maps.Copy(tests, map[string]func(*testing.T){
				"dry": f.dry, "rights": f.rights, "names": f.names, "limits": f.limits, "definitions": f.definitions, "audited": f.audited,
			})
		}
		for name, test := range tests {
			t.Run(name, test)
		}
	})
}

// operated is a cluster that gets transactions.
type operated struct {
	Client            kubernetes.Interface
	kubeconfig, audit string
}

// operation is one of a transaction.
type operation map[string]any

// create creates an object, which is given as YAML.
func create(object string) operation {
	return operation{"verb": "create", "object": parsed(object)}
}

// change patches an object, by a merge patch. Both are given as YAML.
func change(target, patch string) operation {
	return operation{"verb": "patch", "target": parsed(target), "patch": parsed(patch)}
}

// remove deletes an object, which is given as YAML.
func remove(target string) operation { return operation{"verb": "delete", "target": parsed(target)} }

// of is the same operation on a subresource.
func (o operation) of(subresource string) operation {
	o["subresource"] = subresource
	return o
}

func parsed(text string) (object map[string]any) {
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		panic(err)
	}
	return object
}

// done is the answer to a transaction.
type done struct {
	Metadata metav1.ObjectMeta
	Status   struct {
		ResourceVersion string
		Operations      []struct {
			Name, ResourceVersion string
			Warnings              []string
			Object                json.RawMessage
		}
	}
}

// transactAs makes a transaction as the user of a client. parameters are those of the request.
func transactAs(ctx context.Context, c kubernetes.Interface, name string, parameters map[string]string, operations ...operation) (answer done, err error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "history.sqube.io/v1alpha1", "kind": "Transaction", "metadata": map[string]any{"name": name}, "spec": map[string]any{"operations": operations},
	})
	if err != nil {
		return answer, err
	}
	request := c.CoreV1().RESTClient().Post().AbsPath("/apis/history.sqube.io/v1alpha1/transactions").SetHeader("Content-Type", "application/json").Body(body)
	for key, value := range parameters {
		request = request.Param(key, value)
	}
	text, err := request.Do(ctx).Raw()
	if err != nil {
		status := metav1.Status{}
		if json.Unmarshal(text, &status) == nil && status.Status == metav1.StatusFailure {
			err = &apierrors.StatusError{ErrStatus: status}
		}
		return answer, err
	}
	return answer, json.Unmarshal(text, &answer)
}

// commits makes a transaction that is to be committed.
func (f *operated) commits(t *testing.T, operations ...operation) done {
	t.Helper()
	answer, err := transactAs(t.Context(), f.Client, "", nil, operations...)
	harness.Must(t, err)
	return answer
}

// refuses makes a transaction of which one operation is to be refused with a reason and in these words.
func (f *operated) refuses(t *testing.T, index int, reason metav1.StatusReason, words string, operations ...operation) {
	t.Helper()
	_, err := transactAs(t.Context(), f.Client, "", nil, operations...)
	if err == nil || apierrors.ReasonForError(err) != reason || !strings.Contains(err.Error(), fmt.Sprintf("nothing was written: operations[%d], ", index)) || !strings.Contains(err.Error(), words) {
		t.Errorf("operations[%d] is refused with %v, want %s and %q", index, err, reason, words)
	}
}

// together creates a namespace, what admission looks up in it, and Pods that need it.
func (f *operated) together(t *testing.T) {
	pod := `{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: together}, spec: {serviceAccountName: runner, priorityClassName: together, runtimeClassName: together, containers: [{name: c, image: i}]}}`
	all := []operation{
		create(`{apiVersion: v1, kind: Namespace, metadata: {name: together, labels: {pod-security.kubernetes.io/enforce: baseline}}}`),
		create(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: runner, namespace: together}, imagePullSecrets: [{name: registry}]}`),
		create(`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: together}, value: 1234}`),
		create(`{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: together}, handler: h, overhead: {podFixed: {cpu: 5m}}}`),
		create(`{apiVersion: v1, kind: LimitRange, metadata: {name: limits, namespace: together}, spec: {limits: [{type: Container, default: {cpu: 100m}}]}}`),
		create(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: together, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}, provisioner: p}`),
		create(`{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: together, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}, spec: {controller: c/d}}`),
		create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: claim, namespace: together}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`),
		create(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: ingress, namespace: together}, spec: {defaultBackend: {service: {name: s, port: {number: 80}}}}}`),
		create(fmt.Sprintf(pod, "one")),
		change(`{apiVersion: v1, kind: LimitRange, name: limits, namespace: together}`, `{spec: {limits: [{type: Container, default: {cpu: 300m}}]}}`),
		create(fmt.Sprintf(pod, "two")),
	}
	f.refuses(t, len(all), metav1.StatusReasonForbidden, "violates PodSecurity", append(all[:len(all):len(all)],
		create(`{apiVersion: v1, kind: Pod, metadata: {name: host, namespace: together}, spec: {serviceAccountName: runner, hostNetwork: true, containers: [{name: c, image: i}]}}`))...)
	if _, err := f.Client.CoreV1().Namespaces().Get(t.Context(), "together", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a refused transaction, its namespace: %v", err)
	}
	f.commits(t, all...)
	for name, cpu := range map[string]string{"one": "100m", "two": "300m"} {
		p, err := f.Client.CoreV1().Pods("together").Get(t.Context(), name, metav1.GetOptions{})
		harness.Must(t, err)
		if got := fmt.Sprint(*p.Spec.Priority, p.Spec.ImagePullSecrets, p.Spec.Overhead.Cpu(), " ", p.Spec.Containers[0].Resources.Limits.Cpu()); got != "1234 [{registry}] 5m "+cpu {
			t.Errorf("Pod %s has %s", name, got)
		}
	}
	claim, err := f.Client.CoreV1().PersistentVolumeClaims("together").Get(t.Context(), "claim", metav1.GetOptions{})
	harness.Must(t, err)
	ingress, err := f.Client.NetworkingV1().Ingresses("together").Get(t.Context(), "ingress", metav1.GetOptions{})
	harness.Must(t, err)
	if *claim.Spec.StorageClassName != "together" || *ingress.Spec.IngressClassName != "together" {
		t.Errorf("the claim has the class %s, the Ingress %s", *claim.Spec.StorageClassName, *ingress.Spec.IngressClassName)
	}

	// What was there before is seen as the transaction has changed it.
	bare := create(`{apiVersion: v1, kind: Pod, metadata: {name: bare, namespace: together}, spec: {serviceAccountName: runner, containers: [{name: c, image: i}]}}`)
	f.refuses(t, 1, metav1.StatusReasonForbidden, "violates PodSecurity",
		change(`{apiVersion: v1, kind: Namespace, name: together}`, `{metadata: {labels: {pod-security.kubernetes.io/enforce: restricted}}}`), bare)
	f.refuses(t, 1, metav1.StatusReasonForbidden, "because it is being terminated", remove(`{apiVersion: v1, kind: Namespace, name: together}`), bare)
	f.refuses(t, 1, metav1.StatusReasonForbidden, "no PriorityClass with name together was found", remove(`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, name: together}`), create(fmt.Sprintf(pod, "three")))
	f.commits(t, remove(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, name: together}`), remove(`{apiVersion: networking.k8s.io/v1, kind: IngressClass, name: together}`))
}

// quota has transactions count what they create: a refused one counts nothing, and two at once never get more than there is.
func (f *operated) quota(t *testing.T) {
	pods := func(from, to int) (all []operation) {
		for i := from; i < to; i++ {
			all = append(all, create(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: p%d, namespace: quota}, spec: {serviceAccountName: runner, containers: [{name: c, image: i}]}}`, i)))
		}
		return all
	}
	makeNamespace(t, f.Client, "quota")
	f.commits(t, create(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: runner, namespace: quota}}`),
		create(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: pods, namespace: quota}, spec: {hard: {pods: "10"}}}`),
	)
	used := func(want string) {
		t.Helper()
		harness.Retry(t, "the quota has counted "+want, func() error {
			q, err := f.Client.CoreV1().ResourceQuotas("quota").Get(t.Context(), "pods", metav1.GetOptions{})
			harness.Must(t, err)
			if amount, counted := q.Status.Used["pods"]; !counted || amount.String() != want {
				return fmt.Errorf("it has counted %s", amount.String())
			}
			return nil
		})
	}
	used("0")
	f.refuses(t, 10, metav1.StatusReasonForbidden, "exceeded quota: pods", pods(0, 11)...)
	used("0")
	results := make(chan error)
	for i := range 4 {
		go func() {
			_, err := transactAs(t.Context(), f.Client, "", nil, pods(10*i, 10*i+4)...)
			results <- err
		}()
	}
	admitted := 0
	for range 4 {
		switch err := <-results; {
		case err == nil:
			admitted++
		case !apierrors.IsForbidden(err):
			t.Errorf("a transaction is refused with %v", err)
		}
	}
	list, err := f.Client.CoreV1().Pods("quota").List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	if admitted != 2 || len(list.Items) != 8 {
		t.Errorf("%d transactions of 4 Pods are admitted, and there are %d Pods, of 10", admitted, len(list.Items))
	}
	used("8")
}

// services checks that addresses and ports of Services are those of what was committed, whatever transactions do with them.
func (f *operated) services(t *testing.T) {
	makeNamespace(t, f.Client, "services")
	service := func(name, ip string, port int) operation {
		return create(fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: services}, spec: {type: NodePort, clusterIP: %s, ports: [{port: 80, nodePort: %d}]}}`, name, ip, port))
	}
	allocated := func(ip string, want bool) {
		t.Helper()
		_, err := f.Client.NetworkingV1().IPAddresses().Get(t.Context(), ip, metav1.GetOptions{})
		if got := err == nil; got != want || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("the address %s is allocated: %t, %v", ip, got, err)
		}
	}
	twice := service("twice", "10.0.0.201", 31001)
	f.refuses(t, 2, metav1.StatusReasonInvalid, "provided port is already allocated", twice, service("other", "10.0.0.202", 31002), service("third", "10.0.0.203", 31001))
	allocated("10.0.0.201", false)
	allocated("10.0.0.202", false)
	if _, err := transactAs(t.Context(), f.Client, "", map[string]string{"dryRun": "All"}, twice); err != nil {
		t.Error(err)
	}
	allocated("10.0.0.201", false)
	f.commits(t, twice, service("other", "10.0.0.202", 31002))
	allocated("10.0.0.201", true)
	f.refuses(t, 1, metav1.StatusReasonInvalid, "provided port is already allocated", service("third", "10.0.0.203", 31003), service("fourth", "10.0.0.204", 31001))
	allocated("10.0.0.203", false)

	target := `{apiVersion: v1, kind: Service, name: twice, namespace: services}`
	f.refuses(t, 1, metav1.StatusReasonNotFound, "not found", remove(target), remove(target))
	allocated("10.0.0.201", true)
	f.refuses(t, 1, metav1.StatusReasonInvalid, "provided port is already allocated", change(target, `{spec: {type: ClusterIP}}`), service("fourth", "10.0.0.204", 31001))
	f.commits(t, change(target, `{spec: {type: ClusterIP}}`))
	f.commits(t, service("fourth", "10.0.0.204", 31001), remove(target))
	allocated("10.0.0.201", false)
	f.commits(t, service("fifth", "10.0.0.201", 31005), remove(`{apiVersion: v1, kind: Service, name: fifth, namespace: services}`))
	allocated("10.0.0.201", false)
	f.commits(t, service("fifth", "10.0.0.201", 31005))

	// Transactions that are run again, since others have changed the same object.
	f.commits(t, create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: same, namespace: services}}`))
	results := make(chan error)
	for i := range 6 {
		go func() {
			_, err := transactAs(t.Context(), f.Client, "", nil,
				create(`{apiVersion: v1, kind: Service, metadata: {generateName: again-, namespace: services}, spec: {ports: [{port: 80}]}}`),
				change(`{apiVersion: v1, kind: ConfigMap, name: same, namespace: services}`, fmt.Sprintf(`{data: {a%d: b}}`, i)))
			results <- err
		}()
	}
	for range 6 {
		harness.Must(t, <-results)
	}
	addresses, err := f.Client.NetworkingV1().IPAddresses().List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	n := 0
	for _, a := range addresses.Items {
		if a.Spec.ParentRef.Namespace == "services" && strings.HasPrefix(a.Spec.ParentRef.Name, "again-") {
			n++
		}
	}
	if n != 6 {
		t.Errorf("6 Services of transactions that were run again have %d addresses", n)
	}

	// The last finalizer of a Service that is being deleted.
	f.commits(t,
		change(`{apiVersion: v1, kind: Service, name: fifth, namespace: services}`, `{metadata: {finalizers: [example.com/held]}}`),
		remove(`{apiVersion: v1, kind: Service, name: fifth, namespace: services}`))
	unhold := func() operation {
		return change(`{apiVersion: v1, kind: Service, name: fifth, namespace: services}`, `{metadata: {finalizers: null}}`)
	}
	f.refuses(t, 0, metav1.StatusReasonForbidden, "can't remove the last finalizer", unhold().of("status"))
	f.refuses(t, 1, metav1.StatusReasonNotFound, "not found", unhold(), remove(`{apiVersion: v1, kind: Service, name: fifth, namespace: services}`))
	allocated("10.0.0.201", true)
	f.commits(t, unhold())
	allocated("10.0.0.201", false)
}
