package console

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestUnconfirmed confirms a transaction on the overview, which lists it while it waits.
func TestUnconfirmed(t *testing.T) {
	newNamespace(t, "confirmed")
	newConfigMap(t, "jane", "confirmed", "config", "good")
	body := `{"apiVersion":"history.sqube.io/v1alpha1","kind":"Transaction","metadata":{"name":"release"},"spec":{"confirmWithin":"10m","operations":[{
		"verb":"patch","target":{"apiVersion":"v1","kind":"ConfigMap","namespace":"confirmed","name":"config"},"patch":{"data":{"key":"new"}}}]}}`
	must(t, as("agent").CoreV1().RESTClient().Post().AbsPath("/apis/history.sqube.io/v1alpha1/transactions").
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error())
	p := newPage(t)
	p.signIn(admin)
	p.sees("To be confirmed", "release", "1 operation by agent")
	p.click(".unconfirmed button", "Confirm")
	p.sees("release is confirmed")
	p.misses("To be confirmed")
	found, err := as("jane").CoreV1().ConfigMaps("confirmed").Get(t.Context(), "config", metav1.GetOptions{})
	must(t, err)
	if found.Data["key"] != "new" {
		t.Errorf("the ConfigMap has %v", found.Data)
	}
}
