package console

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// newDeployment makes a Deployment with one replica.
func newDeployment(t testing.TB, namespace, name string) {
	t.Helper()
	labels := map[string]string{"app": name}
	_, err := as("").AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}, metav1.CreateOptions{})
	must(t, err)
}

func replicas(t testing.TB, namespace, name string) int32 {
	t.Helper()
	d, err := as("").AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return *d.Spec.Replicas
}

// shared downloads the result that a page shows, and opens the file.
func (p *page) shared() *page {
	p.Helper()
	eval[any](p, "URL.createObjectURL = (b) => { window.shared = b.text(); return '#'; }")
	p.click("button", "Download")
	p.until("window.shared")
	file := filepath.Join(p.TempDir(), "shared.html")
	must(p, os.WriteFile(file, []byte(eval[string](p, "window.shared")), 0o644))
	other := newPage(p.TB)
	must(p, chromedp.Do(other.ctx, chromedp.Navigate("file://"+file)))
	return other
}

// TestTry scales a Deployment on a copy, shares what came of it, and does it.
func TestTry(t *testing.T) {
	newNamespace(t, "try")
	newDeployment(t, "try", "web")
	p := signedIn(t, admin)
	p.open("#/object?r=apps/v1/deployments&ns=try&name=web")
	p.click(".actions button", "Scale")
	p.until("document.activeElement.id === 'replicas'")
	eval[any](p, "document.activeElement.value = '3'")
	p.click("dialog button", "Try")
	p.sees("Try: Scale Deployment web from 1 to 3", "What follows", ".spec.replicas", "ReplicaSet", "deployment-controller", "At the end")
	if got := replicas(t, "try", "web"); got != 1 {
		t.Errorf("after a trial, there are %d replicas", got)
	}
	if eval[bool](p, "document.documentElement.scrollWidth > innerWidth") {
		t.Error("the page is wider than the window")
	}

	other := p.shared() // the same to others, with its slider, and without a server
	other.sees("Scale Deployment web from 1 to 3", "What follows", "At the end")
	eval[any](other, "document.querySelector('.trial-slider').focus()")
	other.keys(kb.Home)
	other.sees("After 0:00")

	p.click(".actions button", "Apply")
	p.sees("Done: Scale Deployment web from 1 to 3")
	if got := replicas(t, "try", "web"); got != 3 {
		t.Errorf("after it was applied, there are %d replicas", got)
	}
}

// TestTryChanged applies a change whose object somebody else has changed since it was tried.
func TestTryChanged(t *testing.T) {
	newNamespace(t, "stale")
	newConfigMap(t, "jane", "stale", "settings", "first")
	p := signedIn(t, admin)
	p.open("#/edit?r=v1/configmaps&ns=stale&name=settings")
	p.until("document.activeElement.tagName === 'TEXTAREA'")
	p.click("button", "Apply")
	p.sees("Nothing has changed.")
	eval[any](p, "(() => { const e = document.querySelector('textarea'); e.value = e.value.replace('key: first', 'key: [') })()")
	p.click("button", "Try")
	p.sees("this is no YAML")
	const markup = `<img src=x onerror="window.owned = 1"></script><script>window.owned = 1</script>`
	eval[any](p, "(() => { const e = document.querySelector('textarea'); e.value = e.value.replace('key: [', "+quote("key: '"+markup+"'")+") })()")
	p.click("button", "Try")
	p.sees("It comes to rest", ".data.key", markup)
	other := p.shared()
	other.sees(markup)
	for _, shown := range []*page{p, other} {
		if eval[bool](shown, "window.owned === 1 || [...document.images].some((i) => !i.src.endsWith('/icon.svg'))") {
			t.Error("markup of an object is in the page")
		}
	}
	setConfigMap(t, "omar", "stale", "settings", "second")
	p.click(".actions button", "Apply")
	p.sees("Something has changed since")
	p.click("button", "Back") // to what was edited
	p.until("document.querySelector('textarea')?.value.includes('<img')")
	p.click("button", "Cancel")
	p.sees("key: second")
	m, err := as("").CoreV1().ConfigMaps("stale").Get(t.Context(), "settings", metav1.GetOptions{})
	must(t, err)
	if m.Data["key"] != "second" {
		t.Errorf("the change of somebody else became %q", m.Data["key"])
	}
}

// TestTryFile drops a file with two objects on the console, one of which a quota refuses.
func TestTryFile(t *testing.T) {
	newNamespace(t, "drop")
	p := signedIn(t, admin)
	p.open("#/overview?ns=drop")
	p.sees("Who writes")
	drop := func(yaml string) {
		eval[any](p, "(() => { const dataTransfer = new DataTransfer(); dataTransfer.items.add(new File(["+quote(yaml)+"], 'shop.yaml')); document.body.dispatchEvent(new DragEvent('drop', {dataTransfer, bubbles: true, cancelable: true})); })()")
	}
	const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dropped}\ndata: {key: value}\n"
	drop(configMap + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: dropped}\nstringData: {password: hunter2}\n")
	p.sees("Try: Apply shop.yaml: 2 objects", "ConfigMap", "created")
	p.misses("hunter2")
	p.click(".actions button", "Apply")
	p.sees("Done: Apply shop.yaml")
	m, err := as("").CoreV1().ConfigMaps("drop").Get(t.Context(), "dropped", metav1.GetOptions{})
	if err != nil || m.Data["key"] != "value" {
		t.Errorf("applied: %v, %v", m.Data, err)
	}
	drop(strings.ReplaceAll(configMap, "name: dropped", "name: Not_A_Name"))
	p.sees("The API refuses it", "Not_A_Name")
	if eval[bool](p, element(".actions button", "Apply")+" !== undefined") {
		t.Error("what was refused can be applied")
	}
}

// TestTryUndo tries the plan of an undo.
func TestTryUndo(t *testing.T) {
	newNamespace(t, "tryundo")
	newConfigMap(t, "jane", "tryundo", "precious", "gold")
	must(t, as("omar").CoreV1().ConfigMaps("tryundo").Delete(t.Context(), "precious", metav1.DeleteOptions{}))
	p := signedIn(t, admin)
	p.open("#/trash?ns=tryundo")
	p.click("button", "Bring back")
	p.click("dialog button:enabled", "Try")
	p.sees("Try: Bring back precious", "It comes to rest", "created")
	p.click(".actions button", "Apply")
	p.sees("Done: Bring back precious")
	m, err := as("").CoreV1().ConfigMaps("tryundo").Get(t.Context(), "precious", metav1.GetOptions{})
	if err != nil || m.Data["key"] != "gold" {
		t.Errorf("brought back: %v, %v", m.Data, err)
	}
}

// TestTryRights has users with a right in one namespace only.
func TestTryRights(t *testing.T) {
	newNamespace(t, "ours")
	newDeployment(t, "ours", "web")
	token, err := tokenFor("ours", "editor", &rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"}, false)
	must(t, err)
	p := signedIn(t, token)
	p.open("#/object?r=apps/v1/deployments&ns=ours&name=web")
	p.click(".actions button", "Scale")
	p.until("document.activeElement.id === 'replicas'")
	p.misses("Try") // which takes a right of its own
	if code := eval[int](p, fmt.Sprintf("fetch('trials', {method: 'POST', body: '{}', headers: {Authorization: 'Bearer ' + %s}}).then((r) => r.status)", quote(token))); code != 403 {
		t.Errorf("who has no right to try got %d", code)
	}
	eval[any](p, "document.querySelector('#replicas').value = '2'")
	p.click("dialog button", "Apply")
	p.sees("Done: Scale Deployment web from 1 to 2")
	if got := replicas(t, "ours", "web"); got != 2 {
		t.Errorf("%d replicas", got)
	}

	// With the right, a trial shows nothing of what its user may not read.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "try"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "post"}, NonResourceURLs: []string{"/console/trials"}}}}
	_, err = as("").RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	must(t, err)
	_, err = as("").RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "try"},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "try"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "ours", Name: "editor"}}}, metav1.CreateOptions{})
	must(t, err)
	newNamespace(t, "theirs-alone")
	newConfigMap(t, "", "theirs-alone", "unseen", "private")
	const change = `{"for": "1m", "namespace": "ours", "spec": {"operations": [{"verb": "patch", "patch": {"data": {"more": "x"}},
		"target": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "theirs-alone", "name": "unseen"}}]}}`
	p.until(fmt.Sprintf("fetch('trials', {headers: {Authorization: 'Bearer ' + %s}}).then((r) => r.ok)", quote(token)))
	answer := eval[string](p, fmt.Sprintf("fetch('trials', {method: 'POST', body: %s, headers: {Authorization: 'Bearer ' + %s}}).then((r) => r.text())", quote(change), quote(token)))
	if !strings.Contains(answer, `"Refused"`) || strings.Contains(answer, "private") {
		t.Errorf("a trial of what the user may not change returned %s", answer)
	}
}

// TestLog shows the log of a simulated Pod through sqube console, which tries a change on its own machine.
func TestLog(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	dir := t.TempDir()
	server := exec.Command(os.Getenv("SQUBE_BIN"), "serve", "--in-memory", "--simulated-nodes", "1", "--data-dir", dir, "--bind-address", "127.0.0.1", "--secure-port", port)
	must(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	simulated := filepath.Join(dir, "admin.kubeconfig")
	var client kubernetes.Interface
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		own, err := clientcmd.BuildConfigFromFlags("", simulated)
		if err == nil {
			client = kubernetes.NewForConfigOrDie(own)
			_, err = client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		}
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "talker", Annotations: map[string]string{"simnodes.sqube.io/run-second": "log <b>hello</b>"}},
		Spec: corev1.PodSpec{NodeName: "node-0", Containers: []corev1.Container{{Name: "first", Image: "i"}, {Name: "second", Image: "i"}}}}
	_, err = client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	p := newPage(t)
	p.through("console", "--kubeconfig", simulated, "--no-browser")
	p.sees("Who writes")
	p.open("#/object?r=v1/pods&ns=default&name=talker")
	p.sees("Running")
	p.click(".segment", "Log")
	p.sees("Nothing has been written yet.")
	eval[any](p, "(() => { const s = document.querySelector('.tools select'); s.value = 'second'; s.dispatchEvent(new Event('change')); })()")
	p.sees("<b>hello</b>")
	p.click(".segment", "YAML")
	p.sees("nodeName: node-0")
	p.click(".actions a", "Edit")
	p.until("document.activeElement.tagName === 'TEXTAREA'")
	eval[any](p, "(() => { const e = document.querySelector('textarea'); e.value = e.value.replace('name: talker', 'name: talker\\n  labels: {app: talker}') })()")
	p.click("button", "Try")
	p.sees("It comes to rest", ".metadata.labels", "1 node")
}
