package console

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSecretValues shows sizes where others show values: in the list of changes, a change, a comparison and a plan.
func TestSecretValues(t *testing.T) {
	newNamespace(t, "vault")
	secrets := as("jane").CoreV1().Secrets("vault")
	door, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door"}, StringData: map[string]string{"code": "1234"}}, metav1.CreateOptions{})
	must(t, err)
	before := door.ResourceVersion
	door.StringData = map[string]string{"code": "54321"}
	_, err = secrets.Update(t.Context(), door, metav1.UpdateOptions{})
	must(t, err)
	p := signedIn(t, admin)
	for _, view := range []string{"#/changes?ns=vault&kind=Secret&all=1", "#/compare?ns=vault&from=" + before} {
		p.open(view)
		p.sees("door", "4 bytes", "5 bytes")
		p.misses("MTIzNA")
		p.misses("NTQzMjE")
	}
	p.open("#/object?r=v1/secrets&ns=vault&name=door")
	p.click(".change.update button", "Undo")
	p.until("document.querySelector('dialog .diff-line.old')?.textContent.includes('5 bytes') && document.querySelector('dialog .diff-line.new')?.textContent.includes('4 bytes')")
	p.misses("MTIzNA")
}
