package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
)

// prepareTransactions moves an amount between two ConfigMaps by a transaction. A client chooses audit ids that look like that of its rows.
func (f *history) prepareTransactions(t *testing.T) {
	makeNamespace(t, f.admin, "moves")
	harness.Must(t, transact(t.Context(), f.admin, "prepared", created("moves", "from", "10"), created("moves", "to", "1")))
	harness.Must(t, transact(t.Context(), f.admin, "moved", merged("moves", "from", "7"), merged("moves", "to", "4")))
	config := rest.CopyConfig(f.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("Audit-ID", "transaction:moved/forged")
			return next.RoundTrip(r)
		})
	})
	forger := kubernetes.NewForConfigOrDie(config)
	_, err := forger.CoreV1().ConfigMaps("moves").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "forged"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Must(t, transact(t.Context(), forger, "chosen", created("moves", "chosen", "0")))
}

// created and merged are operations on a ConfigMap with an amount.
func created(namespace, name, amount string) string {
	return fmt.Sprintf(`{"verb":"create","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":%q},"data":{"amount":%q}}}`, namespace, name, amount)
}

func merged(namespace, name, amount string) string {
	return fmt.Sprintf(`{"verb":"patch","target":{"apiVersion":"v1","kind":"ConfigMap","namespace":%q,"name":%q},"patch":{"data":{"amount":%q}}}`, namespace, name, amount)
}

// transact makes a transaction of operations.
func transact(ctx context.Context, c kubernetes.Interface, name string, operations ...string) error {
	_, err := transacted(ctx, c, name, operations...)
	return err
}

// transacted makes a transaction, and returns the revision of each operation, 0 for none.
func transacted(ctx context.Context, c kubernetes.Interface, name string, operations ...string) (versions []int64, err error) {
	body := fmt.Sprintf(`{"apiVersion":"history.sqube.io/v1alpha1","kind":"Transaction","metadata":{"name":%q},"spec":{"operations":[%s]}}`, name, strings.Join(operations, ","))
	result := c.CoreV1().RESTClient().Post().AbsPath("/apis/history.sqube.io/v1alpha1/transactions").SetHeader("Content-Type", "application/json").
		MaxRetries(0).Body([]byte(body)).Do(ctx)
	if err := result.Error(); err != nil { // that of Raw lacks the message
		return nil, err
	}
	answer, err := result.Raw()
	if err != nil {
		return nil, err
	}
	var made struct {
		Status struct {
			Operations []struct{ ResourceVersion string }
		}
	}
	err = json.Unmarshal(answer, &made)
	for _, o := range made.Status.Operations {
		version, _ := strconv.ParseInt(o.ResourceVersion, 10, 64) // a deletion may have none
		versions = append(versions, version)
	}
	return versions, err
}

// transactions selects what transactions did, and finds nothing that only looks like it.
func (f *history) transactions(t *testing.T) {
	for selector, want := range map[string]string{
		"transaction=prepared": "create from create to", "transaction=moved": "update from update to", "transaction=moved,name=to": "update to",
		"transaction=moved,order=newest": "update to update from", "transaction=other": "", "transaction=chosen": "create chosen",
	} {
		if got := strings.Join(f.names(t, "", "moves", selector), " "); got != want {
			t.Errorf("%s selects %q, want %q", selector, got, want)
		}
	}
	var ids []string
	list, err := f.changes("", "moves").List(t.Context(), metav1.ListOptions{FieldSelector: "kind=ConfigMap,name!=kube-root-ca.crt"})
	harness.Must(t, err)
	for _, c := range list.Items {
		id, _ := c.Object["auditID"].(string)
		ids = append(ids, fmt.Sprint(c.Object["transaction"], " ", strings.Repeat("given ", strings.Count(id, "client:transaction:moved/forged"))))
		if strings.Contains(strings.TrimPrefix(id, "client:transaction:moved/"), "/") || len(id) < len("forged") {
			t.Errorf("a change has the audit id %q", id)
		}
	}
	const want = "prepared  prepared  moved  moved  <nil> given  chosen "
	if got := strings.Join(ids, " "); got != want {
		t.Errorf("the changes are of transactions %q, want %q", got, want)
	}
	if out := kubectlPrints(t, f.kubeconfig, "get", "changes", "-n", "moves", "--field-selector", "transaction=moved", "-o", "wide"); strings.Count(out, " moved ") != 2 {
		t.Errorf("kubectl get changes prints\n%s", out)
	}
	for _, c := range list.Items {
		before, after := number(t, fmt.Sprint(cmp.Or[any](c.Object["transactionBefore"], "0"))), number(t, fmt.Sprint(cmp.Or[any](c.Object["transactionAfter"], "0")))
		if at := number(t, c.GetName()); c.Object["transaction"] != nil && !(before < at && at <= after && after-before >= 2) || c.Object["transaction"] == nil && before+after > 0 {
			t.Errorf("the change %d of %v is after %d and at %d or before", at, c.Object["transaction"], before, after)
		}
	}
	if out := kubectlPrints(t, f.kubeconfig, "explain", "changes.transaction"); !strings.Contains(out, "all or none") {
		t.Errorf("kubectl explain prints\n%s", out)
	}
}

// transactionsAsOne prints what a transaction did as one, and takes it back as one.
func (f *history) transactionsAsOne(t *testing.T) {
	watching, err := f.changes("", "moves").Watch(t.Context(), metav1.ListOptions{FieldSelector: "transaction=next"})
	harness.Must(t, err)
	defer watching.Stop()
	harness.Must(t, transact(t.Context(), f.admin, "next", merged("moves", "from", "0"), merged("moves", "to", "11")))
	for _, want := range []string{"from", "to"} {
		event := <-watching.ResultChan()
		text, _ := json.Marshal(event.Object)
		if !strings.Contains(string(text), `"name":"`+want+`"`) {
			t.Errorf("the watch has %s %s, want the change of %s", event.Type, text, want)
		}
	}
	kubeconfig := []string{"-n", "moves", "--kubeconfig", f.kubeconfig}
	if out := succeeds(t, append([]string{"changes"}, kubeconfig...)); !regexp.MustCompile(`(?m)^transaction moved\n  \d+ .*configmap/from .*\n  \d+ .*configmap/to .*\n\d+ .*configmap/forged`).MatchString(out) {
		t.Errorf("sqube changes prints\n%s", out)
	}
	if out := succeeds(t, append([]string{"blame", "cm/from"}, kubeconfig...)); !strings.Contains(out, " in next ") || !strings.Contains(out, " in prepared ") {
		t.Errorf("sqube blame prints\n%s", out)
	}
	out := succeeds(t, append([]string{"undo", "--transaction", "next", "--apply"}, kubeconfig...))
	has(t, out, `    .data.amount: "0" → "7"`, `    .data.amount: "11" → "4"`, totals(0, 2, 0, 0))
	has(t, succeeds(t, append(append([]string{"undo"}, inverse(t, out)...), kubeconfig...)), `    .data.amount: "7" → "0"`, `    .data.amount: "4" → "11"`)
	if out := succeeds(t, append([]string{"undo", "--transaction", "other"}, kubeconfig...)); !strings.Contains(out, "There is nothing to undo") {
		t.Errorf("of an unknown transaction, sqube undo prints\n%s", out)
	}
}

// historyOfTransactions reads from the database which transactions have changed an object.
func (f *history) historyOfTransactions(t *testing.T, database string) {
	out := succeeds(t, []string{"history", "configmap/from", "-n", "moves", "--datastore", database})
	if !regexp.MustCompile(`(?m)^REVISION .* TRANSACTION +CHANGED\n.* prepared .*\n.* moved +\.data\.amount$`).MatchString(out) {
		t.Errorf("sqube history prints\n%s", out)
	}
	if out = succeeds(t, []string{"history", "configmap/from", "-n", "moves", "--transaction", "moved", "--datastore", database}); strings.Count(out, "\n") != 2 {
		t.Errorf("of one transaction, sqube history prints\n%s", out)
	}
}
