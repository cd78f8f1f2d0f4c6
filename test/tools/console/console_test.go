package console

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSigningIn(t *testing.T) {
	p := newPage(t)
	p.signIn("nonsense")
	p.sees("The server does not accept this token.")
	if eval[bool](p, "sessionStorage.length > 0 || document.cookie !== ''") {
		t.Error("a token that was refused is kept")
	}
	p.open("#/list?r=v1/namespaces")
	p.signIn(admin)
	p.sees("Namespaces", "kube-system")
	must(t, chromedp.Do(p.ctx, chromedp.Reload()))
	p.sees("kube-system")

	eval[any](p, "sessionStorage.setItem('sqube-token', 'expired')")
	p.open("#/list?r=v1/secrets")
	p.sees("The token has expired or was refused.")
	p.signIn(admin)
	p.sees("Secrets")
	p.click("button[aria-label='Sign out']", "")
	p.sees("Sign in")
	if eval[bool](p, "sessionStorage.length > 0") {
		t.Error("the token is kept after signing out")
	}
}

// TestKubeconfig uses the console with a client certificate, which is sqube console's to show, from the file with which it starts a browser.
func TestKubeconfig(t *testing.T) {
	programs := t.TempDir()
	file := filepath.Join(programs, "console.html")
	for _, name := range []string{"xdg-open", "open"} {
		must(t, os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\ncp \"$1\" '"+file+".part' && mv '"+file+".part' '"+file+"'\n"), 0o755))
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	p := newPage(t)
	p.serve("console", "--kubeconfig", kubeconfig)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		_, err := os.Stat(file)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no browser was opened: %v", err)
		}
	}
	must(t, chromedp.Do(p.ctx, chromedp.Navigate("file://"+file)))
	p.sees("kubernetes-admin", "Who writes")
	if eval[bool](p, "location.href.includes('key=') || document.cookie !== '' || sessionStorage.length > 0") {
		t.Error("scripts can read the credentials")
	}
	newNamespace(t, "local")
	newConfigMap(t, "jane", "local", "lost", "1")
	must(t, as("jane").CoreV1().ConfigMaps("local").Delete(t.Context(), "lost", metav1.DeleteOptions{}))
	p.open("#/trash?ns=local")
	p.click("button", "Bring back")
	p.click("dialog .primary:enabled", "Apply")
	p.sees("Done. This undo is in the history too")
}

// TestFile shows a backup of the server, without the server.
func TestFile(t *testing.T) {
	newNamespace(t, "kept")
	newConfigMap(t, "jane", "kept", "settings", "early")
	setConfigMap(t, "omar", "kept", "settings", "late")
	backup := filepath.Join(t.TempDir(), "backup.db")
	if out, err := exec.CommandContext(t.Context(), os.Getenv("SQUBE_BIN"), "backup", backup, "--data-dir", filepath.Dir(kubeconfig)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	setConfigMap(t, "omar", "kept", "settings", "too late")
	p := newPage(t)
	p.through("console", backup, "--no-browser")
	p.sees("administrator", "Who writes")
	p.open("#/object?r=v1/configmaps&ns=kept&name=settings")
	p.sees("key: late", "omar changed it", "jane created it")
	p.keys("[")
	p.sees("key: early", "Back to live")
	p.keys("l")
	p.click(".change.update button", "Undo")
	p.click("dialog .primary:enabled", "Apply")
	p.sees("this is a copy of " + backup + ", which can't be changed")
}

// through opens the console that a command serves.
func (p *page) through(args ...string) {
	p.Helper()
	must(p, chromedp.Do(p.ctx, chromedp.Navigate(p.serve(args...))))
}

// serve has a command serve the console, and returns the URL that it prints.
func (p *page) serve(args ...string) string {
	p.Helper()
	command := exec.Command(os.Getenv("SQUBE_BIN"), args...) // which is to end by itself, and remove its files
	printed, err := command.StdoutPipe()
	must(p, err)
	must(p, command.Start())
	p.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
	})
	url, err := bufio.NewReader(printed).ReadString('\n')
	must(p, err)
	return strings.TrimSpace(url)
}

func TestLiveList(t *testing.T) {
	newNamespace(t, "live")
	p := signedIn(t, admin)
	p.open("#/list?r=v1/configmaps&ns=live")
	p.sees("kube-root-ca.crt")
	newConfigMap(t, "", "live", "appears", "1")
	p.sees("appears")
	must(t, as("").CoreV1().ConfigMaps("live").Delete(t.Context(), "appears", metav1.DeleteOptions{}))
	p.misses("appears")
	p.open("#/list?r=v1/services&ns=live")
	p.sees("No Services")
	p.open("#/list?r=v1/nonsense")
	p.sees("There is no such kind")
}

// TestNewKinds defines a kind and makes a namespace while the page is open.
func TestNewKinds(t *testing.T) {
	p := signedIn(t, admin)
	p.open("#/list?r=example.com/v1/gadgets&ns=")
	p.sees("There is no such kind")
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Kind: "Gadget"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
	}}
	definitions := clientset.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	_, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{})
	must(t, err)
	p.sees("Gadgets", "No Gadgets")
	newNamespace(t, "fresh")
	p.until("[...document.querySelectorAll('select.namespace option')].some((o) => o.value === 'fresh')")
	must(t, definitions.Delete(t.Context(), definition.Name, metav1.DeleteOptions{}))
	p.until("![...document.querySelectorAll('.kinds a')].some((a) => a.textContent === 'Gadgets')")
}

func TestTime(t *testing.T) {
	newNamespace(t, "past")
	newConfigMap(t, "jane", "past", "settings", "early")
	setConfigMap(t, "omar", "past", "settings", "late")
	p := signedIn(t, admin)
	p.open("#/object?r=v1/configmaps&ns=past&name=settings")
	p.sees("key: late", "omar changed it", "jane created it", "early")
	p.keys("[")
	p.sees("key: early", "Back to live")
	if at := eval[string](p, "new URLSearchParams(location.hash.split('?')[1]).get('at') ?? ''"); at == "" {
		t.Error("the moment is not in the link")
	}
	link := eval[string](p, "location.hash")
	p.keys("[")
	p.sees("key: early") // there is nothing before
	p.keys("]")
	p.sees("key: late")
	p.keys("l")
	p.until("!location.hash.includes('at=')")

	other := newPage(t) // the link shows the same to others
	other.open(link)
	other.signIn(admin)
	other.sees("key: early", "Back to live")

	// Dragged to the left end, the slider shows when there was nothing; at the right end, it is live.
	p.open("#/list?r=v1/configmaps&ns=past")
	p.sees("settings")
	p.until("document.querySelector('.bars').getAttribute('d')")
	at := eval[[]float64](p, "(() => { const r = document.querySelector('.track').getBoundingClientRect(); return [r.left, r.right, r.top + r.height / 2]; })()")
	must(t, chromedp.Do(p.ctx, chromedp.DragAndDropXY(at[1]-30, at[2], at[0]+4, at[2])))
	p.sees("No ConfigMaps", "Back to live")
	must(t, chromedp.Do(p.ctx, chromedp.DragAndDropXY(at[0]+4, at[2], at[1]-1, at[2])))
	p.sees("settings")
	p.until("!document.body.classList.contains('is-past')")
}

func TestUndo(t *testing.T) {
	newNamespace(t, "undo")
	newConfigMap(t, "jane", "undo", "precious", "gold")
	newConfigMap(t, "jane", "undo", "settings", "right")
	setConfigMap(t, "omar", "undo", "settings", "wrong")
	must(t, as("omar").CoreV1().ConfigMaps("undo").Delete(t.Context(), "precious", metav1.DeleteOptions{}))
	p := signedIn(t, admin)

	p.open("#/trash?ns=undo")
	p.sees("precious", "omar")
	p.click("button", "Bring back")
	p.sees("Nothing has happened yet", "undo/precious")
	if _, err := as("").CoreV1().ConfigMaps("undo").Get(t.Context(), "precious", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the plan alone: %v", err)
	}
	p.click("dialog .primary:enabled", "Apply")
	p.sees("Done. This undo is in the history too")
	m, err := as("").CoreV1().ConfigMaps("undo").Get(t.Context(), "precious", metav1.GetOptions{})
	if err != nil || m.Data["key"] != "gold" {
		t.Errorf("brought back: %v, %v", m.Data, err)
	}
	p.keys(kb.Escape)

	p.open("#/object?r=v1/configmaps&ns=undo&name=settings")
	p.click(".change.update button", "Undo")
	p.until("document.querySelector('dialog .diff-line.old')?.textContent.includes('wrong') && document.querySelector('dialog .diff-line.new')?.textContent.includes('right')")
	p.click("dialog .primary:enabled", "Apply")
	p.sees("Done. This undo is in the history too", "key: right")
	p.keys(kb.Escape)

	// What somebody else has changed since is overwritten only if the user says so.
	newConfigMap(t, "jane", "undo", "contested", "first")
	setConfigMap(t, "omar", "undo", "contested", "second")
	setConfigMap(t, "jane", "undo", "contested", "third")
	p.open("#/object?r=v1/configmaps&ns=undo&name=contested")
	p.sees("omar changed it")
	p.click(".moment:has([title=omar]) button", "Undo")
	p.sees("leave as it is", "was changed later by jane")
	if !eval[bool](p, "document.querySelector('dialog .primary').disabled") {
		t.Error("a plan that does nothing can be applied")
	}
	p.click("dialog label", "Overwrite later changes by others")
	p.until("document.querySelector('dialog .diff-line.old')?.textContent.includes('third')")
	p.click("dialog .primary:enabled", "Apply")
	p.sees("Done. This undo is in the history too", "key: first")
}

func TestUndoOfAUser(t *testing.T) {
	newNamespace(t, "bulk")
	names := []string{"a", "b", "c"}
	for _, name := range names {
		newConfigMap(t, "jane", "bulk", name, "right")
		setConfigMap(t, "mallory", "bulk", name, "wrong")
	}
	p := signedIn(t, admin)
	p.open("#/changes?ns=bulk&kind=ConfigMap&user=mallory")
	p.sees("mallory")
	p.misses("Undo all of these") // an undo can't select by kind
	p.open("#/changes?ns=bulk&user=mallory")
	p.click("button", "Undo all of these")
	p.sees("Undo what mallory did")
	p.click("dialog .primary:enabled", "Apply to 3 objects")
	p.sees("Done. This undo is in the history too")
	for _, name := range names {
		m, err := as("").CoreV1().ConfigMaps("bulk").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || m.Data["key"] != "right" {
			t.Errorf("%s: %v, %v", name, m.Data, err)
		}
	}
}

func TestRights(t *testing.T) {
	newNamespace(t, "mine")
	newNamespace(t, "theirs")
	newConfigMap(t, "", "mine", "visible", "1")
	newConfigMap(t, "", "theirs", "hidden", "1")
	token, err := tokenFor("mine", "viewer", &rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, false)
	must(t, err)
	p := newPage(t)
	p.signIn(token)
	p.sees("Which namespace?")
	p.open("#/list?r=v1/configmaps&ns=mine")
	p.sees("visible")
	p.until("document.querySelector('.bars').getAttribute('d')") // the slider has what the user may see
	p.open("#/list?r=v1/configmaps&ns=theirs")
	p.sees("You may not see this", "cannot list resource")
	p.open("#/list?r=v1/configmaps")
	p.sees("You may not see this")
	p.open("#/list?r=v1/secrets&ns=mine")
	p.sees("You may not see this")
	p.open("#/changes?ns=theirs")
	p.sees("You may not see this")
	p.open("#/changes?ns=mine&kind=ConfigMap")
	p.sees("visible")
	p.open("#/overview?ns=mine")
	p.sees("Who writes", "ConfigMaps")
	p.misses("hidden")

	// Who may edit in one namespace may undo there: a change, and a deletion.
	newConfigMap(t, "jane", "mine", "settings", "right")
	setConfigMap(t, "omar", "mine", "settings", "wrong")
	newConfigMap(t, "jane", "mine", "precious", "gold")
	must(t, as("omar").CoreV1().ConfigMaps("mine").Delete(t.Context(), "precious", metav1.DeleteOptions{}))
	token, err = tokenFor("mine", "editor", &rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"}, false)
	must(t, err)
	p = newPage(t)
	p.signIn(token)
	p.open("#/object?r=v1/configmaps&ns=mine&name=settings")
	p.click(".change.update button", "Undo")
	p.click("dialog .primary:enabled", "Apply")
	p.sees("Done. This undo is in the history too", "key: right")
	p.keys(kb.Escape)
	p.open("#/trash?ns=mine")
	p.sees("precious", "omar")
	p.click("button", "Bring back")
	p.click("dialog .primary:enabled", "Apply")
	p.sees("Done. This undo is in the history too")
}

func TestMaliciousObject(t *testing.T) {
	newNamespace(t, "evil")
	const html = `<img src=x onerror="window.owned = 1"><script>window.owned = 1</script>`
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "evil", Annotations: map[string]string{"note": html}}, Data: map[string]string{"page": html, "more": "a\n" + html}}
	m, err := as(html).CoreV1().ConfigMaps("evil").Create(t.Context(), m, metav1.CreateOptions{FieldManager: `<b onmouseover=alert(1)>`})
	must(t, err)
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "evil"}, Type: "Warning", Reason: html, Message: html,
		InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: "evil", Name: "evil"}, LastTimestamp: metav1.Now()}
	_, err = as("").CoreV1().Events("evil").Create(t.Context(), event, metav1.CreateOptions{})
	must(t, err)
	setConfigMap(t, html, "evil", "evil", html+html)
	p := signedIn(t, admin)
	for _, hash := range []string{"list?r=v1/configmaps&", "object?r=v1/configmaps&name=evil&", "changes?", "compare?from=" + m.ResourceVersion + "&", "overview?", "list?r=v1/events&"} {
		p.open("#/" + hash + "ns=evil")
		p.sees("evil")
		if !strings.HasPrefix(hash, "list?r=v1/configmaps") {
			p.sees("<img src=x")
		}
		if eval[bool](p, "window.owned === 1 || [...document.images].some((i) => !i.src.endsWith('/icon.svg')) || document.querySelectorAll('script').length > 1") {
			t.Errorf("%s: markup of an object is in the page", hash)
		}
	}

	// Even if there were a hole, the policy lets no script run and no request leave.
	p.expected = "Content Security Policy"
	eval[any](p, "(() => { const s = document.createElement('script'); s.textContent = 'window.owned = 1'; document.body.append(s); })()")
	if !eval[bool](p, "window.owned === undefined && fetch('https://127.0.0.2/').then(() => false, () => true)") {
		t.Error("the policy lets a script run, or a request leave")
	}
	if got := len(p.problems); got < 2 {
		t.Errorf("the policy refused %d things, want 2", got)
	}
}

func TestKeyboard(t *testing.T) {
	newNamespace(t, "keys")
	for _, name := range []string{"a-first", "b-second", "c-third"} {
		newConfigMap(t, "", "keys", name, "1")
	}
	setConfigMap(t, "", "keys", "c-third", "2")
	p := newPage(t)
	p.open("#/overview?ns=keys")
	p.signIn(admin)
	p.sees("Overview")
	p.keys("g")
	p.keys("cm\r")
	p.sees("a-first")
	p.keys("/")
	p.keys("-\r")
	p.until("document.querySelector('.row[aria-selected=true]')?.textContent.includes('a-first')")
	p.keys("jjk")
	p.until("document.querySelector('.row[aria-selected=true]')?.textContent.includes('b-second')")
	p.keys("j\r")
	p.sees("key: \"2\"")
	p.keys("t")
	p.until("document.activeElement.getAttribute('role') === 'slider'")
	p.keys(kb.ArrowLeft) // left
	p.sees("key: \"1\"", "Back to live")
	p.keys(kb.Escape)
	p.sees("key: \"2\"")
	p.keys(kb.Escape)
	p.until("location.hash.startsWith('#/list')")
	p.keys("?")
	p.sees("filter what is shown")
	p.keys(kb.Escape)
	p.misses("filter what is shown")
	p.keys("c")
	p.until("location.hash.startsWith('#/changes')")
}

// TestManyPods has a list of so many that only those in view can be elements.
func TestManyPods(t *testing.T) {
	const pods = 10000
	newNamespace(t, "many")
	removesPods(t, "many")
	work := make(chan int)
	var makers sync.WaitGroup
	for range 16 {
		makers.Go(func() {
			c := as("")
			for i := range work {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%05d", i)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
				if _, err := c.CoreV1().Pods("many").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range pods {
		work <- i
	}
	close(work)
	makers.Wait()
	p := signedIn(t, admin)
	p.until("!document.querySelector('.skeleton')") // the overview has been loaded
	start := time.Now()
	p.open("#/list?r=v1/pods&ns=many")
	p.sees("10 000", "pod-00000")
	t.Logf("the list was there after %v", time.Since(start))
	p.until("document.querySelector('.table').getAttribute('aria-rowcount') === '10001'")
	t.Logf("and whole after %v", time.Since(start))
	shown := func() {
		t.Helper()
		if rows := eval[int](p, "document.querySelectorAll('.row').length"); rows == 0 || rows > 200 {
			t.Errorf("%d rows are elements, want some, at most 200", rows)
		}
	}
	shown()
	eval[any](p, "document.querySelector('.table').scrollTop = 36 * 5000")
	p.sees("pod-05000")
	shown()
	eval[any](p, "document.querySelector('.table').focus()")
	p.keys(kb.End)
	p.until("document.querySelector('.tbody').textContent.includes('pod-09999')")
	shown()
	p.keys("/")
	p.keys("pod-0777")
	p.sees("10 of 10 000")
	p.keys(kb.Escape)
	p.sees("pod-00000")
	start = time.Now()
	p.keys("[")
	p.sees("9 999")
	t.Logf("the slider showed the moment before after %v", time.Since(start))
	p.keys("l")
	p.until("!location.hash.includes('at=')")
	start = time.Now()
	must(t, chromedp.Do(p.ctx, chromedp.Reload()))
	p.sees("pod-00000")
	t.Logf("the page, loaded anew, showed the list after %v", time.Since(start))
	p.open("#/changes?ns=many")
	p.sees("100+", "Pod pod-")
	shown()

	// Older changes come when one scrolls to them.
	for want := 500; want <= 1500; want += 500 {
		p.until(fmt.Sprintf("document.querySelector('.table').scrollTop = 1e9, Number(document.querySelector('.table').getAttribute('aria-rowcount')) > %d", want))
	}
	shown()
	p.open("#/changes?ns=many&name=pod-00000")
	p.sees("Pod pod-00000")
	p.until("document.querySelectorAll('.row').length === 1")
	start = time.Now()
	p.keys("[") // of what is selected, that is the first change of them all
	p.until("location.hash.includes('at=')")
	p.open("#/list?r=v1/pods&ns=many&at=" + eval[string](p, "new URLSearchParams(location.hash.split('?')[1]).get('at')"))
	p.until("Number(document.querySelector('.count').textContent || 0) > 0 && Number(document.querySelector('.count').textContent.replaceAll(' ', '')) < 5000")
	t.Logf("the slider jumped over the changes of the others after %v", time.Since(start))
}

// TestOwners has a workload that is well, and one with a problem and a warning.
func TestOwners(t *testing.T) {
	newNamespace(t, "owners")
	c := as("system:serviceaccount:kube-system:deployment-controller")
	for _, name := range []string{"a-well", "z-ill"} {
		replicas, labels := int32(1), map[string]string{"app": name}
		d, err := c.AppsV1().Deployments("owners").Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}, metav1.CreateOptions{})
		must(t, err)
		if name == "a-well" {
			d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
			_, err = c.AppsV1().Deployments("owners").UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
			must(t, err)
		}
	}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "ill"}, Type: "Warning", Reason: "FailedCreate", Message: "exceeded quota",
		InvolvedObject: corev1.ObjectReference{Kind: "Deployment", Namespace: "owners", Name: "z-ill"}, LastTimestamp: metav1.Now()}
	_, err := c.CoreV1().Events("owners").Create(t.Context(), event, metav1.CreateOptions{})
	must(t, err)
	p := signedIn(t, admin)
	p.open("#/tree?ns=owners")
	p.sees("FailedCreate exceeded quota")
	if order := eval[string](p, "[...document.querySelectorAll('.tree-row .cell-name')].map((e) => e.textContent).join()"); order != "z-ill,a-well" {
		t.Errorf("the order is %s", order)
	}
	p.open("#/changes?ns=owners&kind=Deployment")
	p.sees("Only controllers and nodes did")
	p.click("button", "Show these too")
	p.sees("Deployment a-well")
}
