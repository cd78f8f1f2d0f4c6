package transaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/transaction"
)

// config is for an administrator of the server that all tests share.
var config *rest.Config

func TestMain(m *testing.M) {
	s, err := servertest.Start(servertest.Options{NoControllers: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	config = s.Config
	code := m.Run()
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string]string{"a": value}}
}

func valueOf(t *testing.T, c kubernetes.Interface, name string) string {
	t.Helper()
	found, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return found.Data["a"]
}

// TestOperations has one of each kind, on typed objects that don't say their kind.
func TestOperations(t *testing.T) {
	c := kubernetes.NewForConfigOrDie(config)
	client := must[*transaction.Client](t)(transaction.NewClient(config, scheme.Scheme))
	maps := c.CoreV1().ConfigMaps("default")
	old := must[*corev1.ConfigMap](t)(maps.Create(t.Context(), configMap("op-old", "1"), metav1.CreateOptions{}))
	replaced := must[*corev1.ConfigMap](t)(maps.Create(t.Context(), configMap("op-replaced", "1"), metav1.CreateOptions{}))
	replaced.Data["a"] = "2"
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "op-web", Namespace: "default"}}
	web.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	web.Spec.Template.Labels = web.Spec.Selector.MatchLabels
	web.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}

	w := client.New("operations")
	w.FieldManager = "test"
	w.RequireVersion(old)
	w.RequireUID(replaced)
	w.RequireAbsent(configMap("op-new", ""))
	w.Create(configMap("op-new", "1"))
	w.Update(replaced)
	w.Patch(configMap("op-new", ""), types.MergePatchType, []byte(`{"data":{"a":"3"}}`))
	w.Apply(applycorev1.ConfigMap("op-applied", "default").WithData(map[string]string{"a": "4"}), false)
	w.Create(web)
	w.Scale(web, 7)
	w.Delete(old, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &old.UID}})
	done := must[*transaction.Result](t)(w.Commit(t.Context()))

	got := []string{valueOf(t, c, "op-new"), valueOf(t, c, "op-replaced"), valueOf(t, c, "op-applied"), valueOf(t, c, "op-old")}
	if want := []string{"3", "2", "4", ""}; !slices.Equal(got, want) {
		t.Errorf("the objects have %q, want %q", got, want)
	}
	scaled := must[*appsv1.Deployment](t)(c.AppsV1().Deployments("default").Get(t.Context(), "op-web", metav1.GetOptions{}))
	if *scaled.Spec.Replicas != 7 {
		t.Errorf("it was scaled to %d replicas", *scaled.Spec.Replicas)
	}
	var object corev1.ConfigMap
	if err := done.Operations[1].Into(&object); err != nil || object.Data["a"] != "2" || object.ResourceVersion != done.Operations[1].ResourceVersion {
		t.Errorf("the result is %+v, error %v", object, err)
	}
	again := must[*transaction.Result](t)(client.Get(t.Context(), "operations"))
	if again.ResourceVersion != done.ResourceVersion || len(again.Operations) != 7 || again.Operations[0].Name != "op-new" {
		t.Errorf("asked again, it is %+v, was %+v", again, done)
	}

	w = client.New("operations")
	w.Create(configMap("op-second", "1"))
	if _, err := w.Commit(t.Context()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the second one with a name gets %v", err)
	}
}

// TestRefused looks at errors: nothing is written, and they say which part was wrong.
func TestRefused(t *testing.T) {
	c := kubernetes.NewForConfigOrDie(config)
	client := must[*transaction.Client](t)(transaction.NewClient(config, scheme.Scheme))
	w := client.New("")
	w.Create(configMap("refused", "1"))
	w.Patch(configMap("absent", ""), types.MergePatchType, []byte(`{}`))
	_, err := w.Commit(t.Context())
	if i, why, ok := transaction.OperationOf(err); !apierrors.IsNotFound(err) || i != 1 || !ok || why != `configmaps "absent" not found` {
		t.Errorf("the error %v is of operation %d (%v): %s", err, i, ok, why)
	}
	w = client.New("")
	w.RequireAbsent(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	w.Create(configMap("refused", "1"))
	_, err = w.Commit(t.Context())
	if i, why, ok := transaction.RequirementOf(err); !apierrors.IsConflict(err) || i != 0 || !ok || why != "it exists" {
		t.Errorf("the error %v is of requirement %d (%v): %s", err, i, ok, why)
	}
	if valueOf(t, c, "refused") != "" {
		t.Error("an operation of a refused transaction was written")
	}
	w = client.New("")
	w.FieldManager, w.FieldValidation = "test", "Strict"
	w.Apply(json.RawMessage(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"refused","namespace":"default"},"data":{"a":"1","a":"2"}}`), false)
	if _, err = w.Commit(t.Context()); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `"a" already set`) {
		t.Errorf("a field that is there twice gets %v", err)
	}
	untyped := must[*transaction.Client](t)(transaction.NewClient(config, nil))
	w = untyped.New("")
	w.Create(configMap("refused", "1"))
	if _, err = w.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), "does not say its apiVersion and kind") {
		t.Errorf("an object of an unknown kind gets %v", err)
	}
}

// losing loses the answers to some writes: the request arrives, or, with before, not even that.
type losing struct {
	next   http.RoundTripper
	before bool
	left   *atomic.Int32
}

var errLost = errors.New("the connection is broken")

func (l losing) RoundTrip(r *http.Request) (*http.Response, error) {
	lose := r.Method == http.MethodPost && l.left.Add(-1) >= 0
	if lose && l.before {
		return nil, errLost
	}
	answer, err := l.next.RoundTrip(r)
	if err == nil && lose {
		_, _ = io.Copy(io.Discard, answer.Body)
		return nil, errors.Join(errLost, answer.Body.Close())
	}
	return answer, err
}

// lossy returns a client, and how many answers it is still to lose.
func lossy(t *testing.T, before bool) (*transaction.Client, *atomic.Int32) {
	left := &atomic.Int32{}
	own := rest.CopyConfig(config)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return losing{next, before, left} })
	return must[*transaction.Client](t)(transaction.NewClient(own, scheme.Scheme)), left
}

// TestLostAnswers commits once, whatever becomes of the answers.
func TestLostAnswers(t *testing.T) {
	c := kubernetes.NewForConfigOrDie(config)
	for _, before := range []bool{false, true} {
		name := fmt.Sprint("lost-", before)
		client, left := lossy(t, before)
		left.Store(2)
		w := client.New("")
		w.Create(configMap(name, "1"))
		done := must[*transaction.Result](t)(w.Commit(t.Context()))
		if valueOf(t, c, name) != "1" || len(done.Operations) != 1 || done.Operations[0].Name != name {
			t.Errorf("after lost answers, the result is %+v", done)
		}
	}
	client, left := lossy(t, false)
	left.Store(1000)
	w := client.New("")
	w.Create(configMap("lost", "1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.Commit(ctx)
	if unknown, ok := errors.AsType[*transaction.UnknownError](err); !ok || unknown.Name != w.Name() {
		t.Errorf("without any answer, the error is %v", err)
	}
}

// TestOpen writes with ordinary clients in an open transaction: they see it, others don't before it is committed.
func TestOpen(t *testing.T) {
	others := kubernetes.NewForConfigOrDie(config)
	for lose, before := range []bool{false, false, true} {
		client, left := lossy(t, before)
		opened := must[*transaction.Open](t)(client.New("").Open(t.Context(), 0))
		c := kubernetes.NewForConfigOrDie(opened.Config(config))
		name := fmt.Sprint("open-", lose)
		must[*corev1.ConfigMap](t)(c.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name, "1"), metav1.CreateOptions{}))
		if valueOf(t, c, name) != "1" || valueOf(t, others, name) != "" {
			t.Error("what an open transaction has written must be seen by its clients alone")
		}
		if _, err := c.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsBadRequest(err) {
			t.Errorf("a watch gets %v", err)
		}
		left.Store(int32(min(1, lose)))
		done := must[*transaction.Result](t)(opened.Commit(t.Context()))
		if valueOf(t, others, name) != "1" || len(done.Operations) != 1 || done.Operations[0].Verb != "create" {
			t.Errorf("the result is %+v", done)
		}
		if _, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsGone(err) {
			t.Errorf("a request to a transaction that has ended gets %v", err)
		}
	}
	client := must[*transaction.Client](t)(transaction.NewClient(config, scheme.Scheme))
	opened := must[*transaction.Open](t)(client.New("").Open(t.Context(), 0))
	c := kubernetes.NewForConfigOrDie(opened.Config(config))
	must[*corev1.ConfigMap](t)(c.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("open-dropped", "1"), metav1.CreateOptions{}))
	if err := errors.Join(opened.Drop(t.Context()), opened.Drop(t.Context())); err != nil {
		t.Error(err)
	}
	if valueOf(t, others, "open-dropped") != "" {
		t.Error("what was dropped was written")
	}
	conflicting := must[*transaction.Open](t)(client.New("").Open(t.Context(), 0))
	c = kubernetes.NewForConfigOrDie(conflicting.Config(config))
	must[*corev1.ConfigMap](t)(c.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("open-taken", "1"), metav1.CreateOptions{}))
	must[*corev1.ConfigMap](t)(others.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("open-taken", "2"), metav1.CreateOptions{}))
	if _, err := conflicting.Commit(t.Context()); !apierrors.IsConflict(err) || valueOf(t, others, "open-taken") != "2" {
		t.Errorf("the commit of what others have written meanwhile gets %v", err)
	}
}

// TestOpenEnds lets open transactions end by themselves, in virtual time, and opens too many.
func TestOpenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Run(t, servertest.Options{Virtual: true, NoControllers: true})
		client := must[*transaction.Client](t)(transaction.NewClient(s.Config, scheme.Scheme))
		open := func(within time.Duration) (*transaction.Open, func() error) {
			opened := must[*transaction.Open](t)(client.New("").Open(t.Context(), within))
			c := kubernetes.NewForConfigOrDie(opened.Config(s.Config))
			return opened, func() error {
				_, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
				return err
			}
		}
		others := kubernetes.NewForConfigOrDie(s.Config)
		must[*corev1.ConfigMap](t)(others.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("read", "0"), metav1.CreateOptions{}))
		silent, ask := open(0)
		for i := range 11 { // longer than versions are kept for watches
			must[*corev1.ConfigMap](t)(others.CoreV1().ConfigMaps("default").Update(t.Context(), configMap("read", fmt.Sprint(i+1)), metav1.UpdateOptions{}))
			time.Sleep(50 * time.Second)
			if err := ask(); err != nil {
				t.Fatal(err)
			}
		}
		if got := valueOf(t, kubernetes.NewForConfigOrDie(silent.Config(s.Config)), "read"); got != "0" {
			t.Errorf("after nine minutes, a read has %q instead of what was at the begin", got)
		}
		time.Sleep(61 * time.Second)
		if err := ask(); !apierrors.IsGone(err) {
			t.Errorf("after a minute without a request, one gets %v", err)
		}
		if _, err := silent.Commit(t.Context()); !apierrors.IsGone(err) || !strings.Contains(err.Error(), "nothing of it was written") {
			t.Errorf("after a minute without a request, the commit gets %v", err)
		}
		_, ask = open(90 * time.Second)
		time.Sleep(50 * time.Second)
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(41 * time.Second)
		if err := ask(); !apierrors.IsGone(err) {
			t.Errorf("after the time that was given, a request gets %v", err)
		}
		var all []*transaction.Open
		for range 4 {
			opened, _ := open(time.Hour)
			all = append(all, opened)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the client tries again later
		defer cancel()
		if _, err := client.New("").Open(ctx, 0); err == nil {
			t.Error("one too many is opened")
		}
		if err := all[0].Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		open(time.Hour)
	})
}
