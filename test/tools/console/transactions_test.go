package console

import (
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTransactions looks at what a transaction did: as one in the list of changes, which is undone as one, and at no moment in the middle of it.
func TestTransactions(t *testing.T) {
	newNamespace(t, "moves")
	newConfigMap(t, "jane", "moves", "from", "10")
	newConfigMap(t, "jane", "moves", "to", "1")
	operation := `{"verb":"patch","target":{"apiVersion":"v1","kind":"ConfigMap","namespace":"moves","name":%q},"patch":{"data":{"key":%q}}}`
	body := fmt.Sprintf(`{"apiVersion":"history.sqube.io/v1alpha1","kind":"Transaction","metadata":{"name":"move-three"},"spec":{"operations":[%s,%s]}}`,
		fmt.Sprintf(operation, "from", "7"), fmt.Sprintf(operation, "to", "4"))
	answer, err := as("jane").CoreV1().RESTClient().Post().AbsPath("/apis/history.sqube.io/v1alpha1/transactions").SetHeader("Content-Type", "application/json").
		Body([]byte(body)).DoRaw(t.Context())
	must(t, err)
	var made struct {
		Status struct {
			ResourceVersion string
			Operations      []struct{ ResourceVersion string }
		}
	}
	must(t, json.Unmarshal(answer, &made))
	setConfigMap(t, "omar", "moves", "to", "5")
	amounts := func(want string) {
		t.Helper()
		all, err := as("").CoreV1().ConfigMaps("moves").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		got := map[string]string{}
		for _, m := range all.Items {
			got[m.Name] = m.Data["key"]
		}
		if s := got["from"] + " " + got["to"]; s != want {
			t.Errorf("the amounts are %s, want %s", s, want)
		}
	}

	p := signedIn(t, admin)
	const within = "#/list?r=v1/configmaps&ns=moves&at="
	p.open(within + made.Status.Operations[0].ResourceVersion)
	p.until("new URLSearchParams(location.hash.split('?')[1]).get('at') === '" + made.Status.ResourceVersion + "'")
	p.keys("[")
	p.until("Number(new URLSearchParams(location.hash.split('?')[1]).get('at')) < " + made.Status.Operations[0].ResourceVersion)
	p.keys("]")
	p.until("new URLSearchParams(location.hash.split('?')[1]).get('at') === '" + made.Status.ResourceVersion + "'")

	p.open("#/changes?ns=moves")
	p.sees("move-three", "omar")
	p.until("document.querySelectorAll('.row.together').length === 2 && document.querySelectorAll('.row .transaction').length === 1")
	p.click(".row.together", "from")
	p.click("dialog button", "Undo the transaction")
	p.sees("Undo the transaction move-three", "was changed later by omar")
	p.click("dialog button", "Cancel")
	setConfigMap(t, "jane", "moves", "to", "4")
	p.until("document.querySelectorAll('.tbody .row').length === 6")
	p.click(".row .transaction", "move-three")
	p.misses("omar")
	p.click("button", "Undo all of these")
	p.sees("Undo what move-three did")
	p.click("dialog .primary:enabled", "Apply to 2 objects")
	p.sees("Done. This undo is in the history too")
	amounts("10 1")
}
