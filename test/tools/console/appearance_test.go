package console

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

var update = flag.Bool("update", false, "write the pictures in testdata")

// TestAppearance compares the main views with small pictures of them, loosely: fonts, names and times differ.
func TestAppearance(t *testing.T) {
	furnish(t)
	p := signedIn(t, admin)
	views := []struct{ name, hash, sees string }{
		{"overview", "#/overview?ns=shop", "Who writes"},
		{"list", "#/list?r=v1/pods&ns=shop", "Running"},
		{"object", "#/object?r=apps/v1/deployments&ns=shop&name=web", "jane created it"},
		{"changes", "#/changes?ns=shop&user=jane", "web:2"},
		{"trash", "#/trash?ns=shop", "Bring back"},
		{"compare", "#/compare?ns=shop&from=1", "Added"},
		{"owners", "#/tree?ns=shop", "ReplicaSet"},
		{"sql", "#/sql", "Latest changes"},
	}
	for _, look := range []struct {
		name          string
		width, height int64
		scheme        string
	}{{"light", 1280, 800, "light"}, {"dark", 1280, 800, "dark"}, {"phone", 390, 844, "light"}} {
		p.size(look.width, look.height, look.scheme)
		for _, v := range views {
			p.open(v.hash)
			p.sees(v.sees)
			p.until("!document.querySelector('.skeleton') && document.querySelector('.bars').getAttribute('d')")
			if eval[bool](p, "document.documentElement.scrollWidth > innerWidth || document.documentElement.scrollHeight > innerHeight") {
				t.Errorf("%s, %s: the page is larger than the window", v.name, look.name)
			}
			compare(t, p, v.name+"-"+look.name)
		}
	}
}

// furnish fills a namespace.
func furnish(t *testing.T) {
	t.Helper()
	newNamespace(t, "shop")
	ctx := t.Context()
	for i, name := range []string{"cart", "checkout", "search", "web"} {
		c := as("jane")
		replicas := int32(i + 1)
		labels := map[string]string{"app": name}
		template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: name + ":1"}}}}
		d, err := c.AppsV1().Deployments("shop").Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}, metav1.CreateOptions{})
		must(t, err)
		d.Status = appsv1.DeploymentStatus{Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas}
		_, err = as("system:serviceaccount:kube-system:deployment-controller").AppsV1().Deployments("shop").UpdateStatus(ctx, d, metav1.UpdateOptions{})
		must(t, err)
		set, err := as("system:serviceaccount:kube-system:deployment-controller").AppsV1().ReplicaSets("shop").Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-5d8f", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
			Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: d.Spec.Selector, Template: template}}, metav1.CreateOptions{})
		must(t, err)
		for n := range replicas {
			newPod(t, as("system:serviceaccount:kube-system:replicaset-controller"), fmt.Sprintf("%s-%d", set.Name, n), set, template.Spec)
		}
		newConfigMap(t, "omar", "shop", "settings-"+name, "1")
	}
	setConfigMap(t, "jane", "shop", "settings-web", "web:2")
	must(t, as("omar").CoreV1().ConfigMaps("shop").Delete(ctx, "settings-cart", metav1.DeleteOptions{}))
}

// newPod makes a pod that runs.
func newPod(t *testing.T, c kubernetes.Interface, name string, owner *appsv1.ReplicaSet, spec corev1.PodSpec) {
	t.Helper()
	pod, err := c.CoreV1().Pods("shop").Create(t.Context(), &corev1.Pod{Spec: spec, ObjectMeta: metav1.ObjectMeta{
		Name: name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}}}, metav1.CreateOptions{})
	must(t, err)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: spec.Containers[0].Name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	_, err = c.CoreV1().Pods("shop").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	must(t, err)
}

// By so much, parts of a picture and the whole may differ: of 255.
const partMayDiffer, wholeMayDiffer = 96, 8

// compare compares the page with a picture in testdata.
func compare(t *testing.T, p *page, name string) {
	t.Helper()
	// The marks of the time line and the large numbers depend on how long the server has run.
	eval[any](p, "document.querySelectorAll('.bars, .big').forEach((e) => { e.style.visibility = 'hidden' })")
	taken, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	must(t, err)
	decoded, err := png.Decode(bytes.NewReader(taken))
	must(t, err)
	now, path := shrink(decoded), filepath.Join("testdata", name+".png")
	if *update {
		var out bytes.Buffer
		must(t, png.Encode(&out, now))
		must(t, os.WriteFile(path, out.Bytes(), 0o644))
		return
	}
	stored, err := os.ReadFile(path)
	must(t, err)
	want, err := png.Decode(bytes.NewReader(stored))
	must(t, err)
	if want.Bounds() != now.Bounds() {
		t.Errorf("%s: %v, want %v", name, now.Bounds(), want.Bounds())
		return
	}
	sum, most, n := 0, 0, 0
	for y := range now.Bounds().Dy() {
		for x := range now.Bounds().Dx() {
			difference := int(now.GrayAt(x, y).Y) - int(color.GrayModel.Convert(want.At(x, y)).(color.Gray).Y)
			sum, most, n = sum+max(difference, -difference), max(most, difference, -difference), n+1
		}
	}
	if mean := float64(sum) / float64(n); mean > wholeMayDiffer || most > partMayDiffer {
		place := filepath.Join(os.TempDir(), "sqube-console-"+name+".png")
		must(t, os.WriteFile(place, taken, 0o644))
		t.Errorf("%s looks different, by %.1f and in parts by %d: see %s; -update accepts it", name, mean, most, place)
	}
}

// shrink returns the mean brightness of each 10 × 10 pixels.
func shrink(m image.Image) *image.Gray {
	const n = 10
	small := image.NewGray(image.Rect(0, 0, m.Bounds().Dx()/n, m.Bounds().Dy()/n))
	for y := range small.Bounds().Dy() {
		for x := range small.Bounds().Dx() {
			sum := 0
			for i := range n * n {
				sum += int(color.GrayModel.Convert(m.At(x*n+i%n, y*n+i/n)).(color.Gray).Y)
			}
			small.SetGray(x, y, color.Gray{Y: uint8(sum / (n * n))})
		}
	}
	return small
}
