package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// packing are the flags of a server that packs versions as soon as it can.
var packing = []string{"--retention", "1s", "--compact-interval", "50ms"}

// TestPastAfterKills kills a server that packs versions, and is told to keep history, while an object changes. Then all its versions are there:
// as changes, each with what was before, as objects at their revisions, in commands, and in a database restored to a moment that is long
// compacted.
func TestPastAfterKills(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		written := map[int]string{} // values by revision, of all writes that were acknowledged
		s := serve(t, append([]string{"--datastore", engine.Datastore}, packing...))
		for round := range 2 {
			write(t, s, round, written)
			s.Kill(t)
			s.Start(t)
		}
		c := client(t, s.Kubeconfig)
		both := twins{"pair"}
		one, err := both.put(t.Context(), c, "one", "one")
		harness.Must(t, err)
		two, err := both.put(t.Context(), c, "two", "two")
		harness.Must(t, err)
		both.isWhole(t, c, two[0], two[1], "two")
		pages := beginPages(t, c)
		harness.Must(t, c.CoreV1().ConfigMaps("default").Delete(t.Context(), "counter", metav1.DeleteOptions{}))
		_, err = both.put(t.Context(), c, "three", "three")
		harness.Must(t, err)
		revisions := packed(t, s, c)
		both.isWhole(t, c, one[0], one[1], "one")
		both.isWhole(t, c, two[0]-1, two[1], "two") // that of its record
		both.isWhole(t, c, two[0], two[1], "two")
		both.wentBack(t, c, s.Kubeconfig, two)
		pages.goOn(t, c)
		kept := changesOf(t, c, "counter")
		for _, revision := range revisions(written) {
			if value, ok := kept[revision]; !ok || value != written[revision] {
				t.Errorf("revision %d was %s; history has %q, %t", revision, written[revision], value, ok)
			}
		}
		middle := revisions(written)[len(written)/2]
		var then corev1.ConfigMap
		raw, err := c.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/configmaps/counter").
			Param("resourceVersion", fmt.Sprint(middle)).Param("resourceVersionMatch", "Exact").DoRaw(t.Context())
		if err != nil || json.Unmarshal(raw, &then) != nil || then.Data["n"] != written[middle] {
			t.Errorf("at revision %d it is %+v, %v; want %s", middle, then.Data, err, written[middle])
		}
		s.Stop(t)

		database := []string{"--datastore", engine.Datastore}
		if lines := strings.Count(succeeds(t, append([]string{"history", "configmap/counter"}, database...)), "\n"); lines != len(kept)+3 { // with the head, the creation and the deletion
			t.Errorf("sqube history has %d lines for %d versions", lines, len(kept))
		}
		if text := succeeds(t, append([]string{"history", "--kept"}, database...)); !strings.Contains(text, " kB") {
			t.Errorf("what is kept is\n%s", text)
		}
		succeeds(t, append([]string{"check"}, database...))
		both.areEqual(t, "two", func(name string) string {
			return succeeds(t, append([]string{"show", "configmap/" + name, "--at", fmt.Sprint(two[0])}, database...))
		})
		within := []string{"--datastore", harness.SQLite(t)}
		succeeds(t, append([]string{"restore", engine.Datastore, "--to-revision", fmt.Sprint(two[0])}, within...))
		both.areEqual(t, "two", func(name string) string { return succeeds(t, append([]string{"show", "configmap/" + name}, within...)) })
		restored := harness.SQLite(t)
		if engine.Name == "sqlite" {
			restored = harness.Postgres(t)
		}
		succeeds(t, []string{"restore", engine.Datastore, "--to-revision", fmt.Sprint(middle), "--datastore", restored})
		again := serveAgain(t, s, []string{"--datastore", restored})
		c = client(t, again.Kubeconfig)
		old, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "counter", metav1.GetOptions{})
		if err != nil || old.Data["n"] != written[middle] {
			t.Errorf("restored to revision %d it is %v, %v; want %s", middle, old, err, written[middle])
		}
		for _, revision := range revisions(written) {
			if revision <= middle {
				isAsItWas(t, c, fmt.Sprint(revision), map[string]string{"counter": written[revision]})
			} else {
				isLost(t, c, revision)
			}
		}
		areLost(t, again.Kubeconfig, slices.Max(revisions(written)))
		again.Stop(t)
	})
}

// begunPages are the first pages of two lists of the same state, one of the newest and one of an exact revision.
type begunPages struct{ newest, exact *corev1.ConfigMapList }

func beginPages(t *testing.T, c kubernetes.Interface) begunPages {
	t.Helper()
	newest, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1})
	harness.Must(t, err)
	exact, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1, ResourceVersion: newest.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	harness.Must(t, err)
	return begunPages{newest, exact}
}

// goOn reads the next pages after their revision was compacted. Only the exact list goes on at its revision; the other one is continued at
// the newest, with a token that the error has.
func (p begunPages) goOn(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	maps := c.CoreV1().ConfigMaps("default")
	_, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: p.newest.Continue})
	var expired apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &expired) || expired.Status().Continue == "" {
		t.Fatalf("a continue token whose revision is compacted: %v", err)
	}
	harness.Retry(t, "the rest is read before its revision is compacted, too", func() error {
		rest, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: expired.Status().Continue})
		if err != nil || rest.ResourceVersion == p.newest.ResourceVersion || len(rest.Items) != 1 || rest.Items[0].Name == p.newest.Items[0].Name {
			t.Fatalf("the rest: %+v, %v", rest, err)
		}
		again, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: rest.Continue})
		if err == nil && again.ResourceVersion != rest.ResourceVersion {
			t.Fatalf("the page after it is of %s, not %s", again.ResourceVersion, rest.ResourceVersion)
		}
		return err
	})
	names := []string{p.exact.Items[0].Name}
	for next := p.exact.Continue; next != ""; {
		page, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: next})
		harness.Must(t, err)
		if page.ResourceVersion != p.exact.ResourceVersion {
			t.Errorf("a page of the list at revision %s is of %s", p.exact.ResourceVersion, page.ResourceVersion)
		}
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		next = page.Continue
	}
	if !slices.Contains(names, "counter") || strings.Contains(strings.Join(names, " "), "later-") {
		t.Errorf("the list at revision %s has %v", p.exact.ResourceVersion, names)
	}
}

// write changes ConfigMap counter until its first change is packed, and notes what was acknowledged.
func write(t *testing.T, s *sqube.Server, round int, written map[int]string) {
	t.Helper()
	maps := client(t, s.Kubeconfig).CoreV1().ConfigMaps("default")
	counter := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "counter"}, Data: map[string]string{"text": strings.Repeat("what stays ", 100)}}
	var err error
	if round == 0 {
		counter, err = maps.Create(t.Context(), counter, metav1.CreateOptions{})
	} else {
		counter, err = maps.Get(t.Context(), "counter", metav1.GetOptions{})
	}
	harness.Must(t, err)
	first := number(t, counter.ResourceVersion)
	for n := 0; n%20 > 0 || s.Compacted(t) < first; n++ {
		counter.Data["n"] = fmt.Sprintf("%d-%d", round, n)
		counter, err = maps.Update(t.Context(), counter, metav1.UpdateOptions{})
		harness.Must(t, err)
		written[number(t, counter.ResourceVersion)] = counter.Data["n"]
	}
}

// packed waits until all that was written is packed. It returns a function that returns the revisions of a map in order.
func packed(t *testing.T, s *sqube.Server, c kubernetes.Interface) func(map[int]string) []int {
	t.Helper()
	last, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1})
	harness.Must(t, err)
	harness.Retry(t, "versions are packed", func() error {
		// A write, since an idle server rests.
		_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "later-"}}, metav1.CreateOptions{})
		if compacted := s.Compacted(t); err == nil && compacted < number(t, last.ResourceVersion) {
			err = fmt.Errorf("up to %d, not %s", compacted, last.ResourceVersion)
		}
		return err
	})
	return func(of map[int]string) (revisions []int) {
		for revision := range of {
			revisions = append(revisions, revision)
		}
		slices.Sort(revisions)
		return revisions
	}
}

// changesOf returns the values of a counter by revision, and checks that each change begins with what the one before has left.
func changesOf(t *testing.T, c kubernetes.Interface, name string) map[int]string {
	t.Helper()
	raw, err := c.CoreV1().RESTClient().Get().AbsPath("/apis/history.sqube.io/v1alpha1/namespaces/default/changes").Param("fieldSelector", "name="+name).DoRaw(t.Context())
	harness.Must(t, err)
	var list changes.ChangeList
	harness.Must(t, json.Unmarshal(raw, &list))
	values, before := map[int]string{}, ""
	for i, change := range list.Items {
		if want := map[int]string{0: "create", len(list.Items) - 1: "delete"}[i]; want != "" && change.Operation != want {
			t.Errorf("change %d of %d is: %s", i+1, len(list.Items), change.Operation)
		}
		for _, f := range change.Changed {
			if f.Path != ".data.n" {
				continue
			}
			var old, now string
			if f.Old != nil {
				harness.Must(t, json.Unmarshal(f.Old.Raw, &old))
			}
			harness.Must(t, json.Unmarshal(f.New.Raw, &now))
			if old != before {
				t.Errorf("revision %s changes %s, after %s", change.Name, old, before)
			}
			before = now
			values[number(t, change.Name)] = now
		}
	}
	return values
}

// TestNoPast turns history off: what is compacted is gone, also what was kept before.
func TestNoPast(t *testing.T) {
	t.Parallel()
	s := serve(t, packing)
	written := map[int]string{}
	write(t, s, 0, written)
	revisions := packed(t, s, client(t, s.Kubeconfig))(written)
	s.Stop(t)
	s = serveAgain(t, s, append([]string{"--history=0"}, packing...))
	c := client(t, s.Kubeconfig)
	harness.Retry(t, "history is gone", func() error {
		_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "later-"}}, metav1.CreateOptions{})
		if found := sqube.StoreMetrics(t, c); err == nil && (found["history_bytes"] != 0 || found["history_revision"] < float64(revisions[len(revisions)-1])) {
			err = fmt.Errorf("%.0f bytes from revision %.0f", found["history_bytes"], found["history_revision"])
		}
		return err
	})
	_, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: strconv.Itoa(revisions[0]), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("a list at revision %d: %v", revisions[0], err)
	}
	s.Stop(t)
	for _, flags := range [][]string{{"--history=-1s"}, {"--history-bytes=-1"}, {"--history-thin=leases"}} {
		refuses(t, flags[0][:strings.Index(flags[0], "=")], append([]string{"serve", "--data-dir", t.TempDir()}, flags...))
	}
}

// TestPastOfSecrets packs the versions of an encrypted Secret, and looks for its values in the files of the database.
func TestPastOfSecrets(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "encryption.yaml")
	harness.Must(t, os.WriteFile(keys, []byte(encryptSecrets), 0o600))
	s := serve(t, append([]string{"--encryption-provider-config", keys}, packing...))
	c := client(t, s.Kubeconfig)
	secrets := c.CoreV1().Secrets("default")
	first, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door"}, StringData: map[string]string{"code": "openSesame0"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	for n := range 5 {
		first.StringData = map[string]string{"code": fmt.Sprintf("openSesame%d", n+1)}
		changed, err := secrets.Update(t.Context(), first, metav1.UpdateOptions{})
		harness.Must(t, err)
		first = changed
	}
	harness.Must(t, secrets.Delete(t.Context(), "door", metav1.DeleteOptions{}))
	packed(t, s, c)
	s.Stop(t)
	if lines := strings.Count(succeeds(t, []string{"history", "secret/door", "--data-dir", s.DataDir, "--encryption-provider-config", keys}), ".data.code"); lines != 5 {
		t.Errorf("history has %d changes of the code", lines)
	}
	text, err := os.ReadFile(filepath.Join(s.DataDir, "sqube.db"))
	harness.Must(t, err)
	for _, plain := range []string{"openSesame", "b3BlblNlc2FtZ"} {
		if strings.Contains(string(text), plain) {
			t.Errorf("the database has %s", plain)
		}
	}
}

// TestPurge purges the history of a Secret. It takes a right that viewers lack, and leaves a record, with the client's address and the id in
// the audit log.
func TestPurge(t *testing.T) {
	t.Parallel()
	policy, log := filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "audit.log")
	harness.Must(t, os.WriteFile(policy, []byte(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}`), 0o600))
	s := serve(t, append([]string{"--audit-policy-file", policy, "--audit-log-path", log}, packing...))
	c := client(t, s.Kubeconfig)
	secrets := c.CoreV1().Secrets("default")
	leaked, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door"}, StringData: map[string]string{"code": "leaked"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	leaked.StringData = map[string]string{"code": "rotated"}
	_, err = secrets.Update(t.Context(), leaked, metav1.UpdateOptions{})
	harness.Must(t, err)
	packed(t, s, c)
	const path = "/apis/history.sqube.io/v1alpha1/namespaces/default/changes"
	purge := func(user, selector string) error {
		request := c.CoreV1().RESTClient().Delete().AbsPath(path).Param("fieldSelector", selector)
		if user != "" {
			request.SetHeader("Impersonate-User", user)
		}
		return request.Do(t.Context()).Error()
	}
	for _, wrong := range []string{"", "name=door", "resource=secrets", "resource=secrets,name=door,user=jane", "resource!=secrets,name=door"} {
		if err := purge("", wrong); !apierrors.IsBadRequest(err) {
			t.Errorf("purging %q: %v", wrong, err)
		}
	}
	if err := purge("jane", "resource=secrets,name=door"); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights: %v", err)
	}
	if err := purge("", "resource=secrets,name=window"); !apierrors.IsNotFound(err) {
		t.Errorf("what never was: %v", err)
	}
	succeeds(t, []string{"history", "purge", "secret/door", "--kubeconfig", s.Kubeconfig})
	raw, err := c.CoreV1().RESTClient().Get().AbsPath(path).Param("fieldSelector", "name=door").DoRaw(t.Context())
	harness.Must(t, err)
	var list changes.ChangeList
	harness.Must(t, json.Unmarshal(raw, &list))
	if len(list.Items) != 2 || list.Items[0].Operation != "purge" || list.Items[0].User != "kubernetes-admin" || list.Items[1].Operation != "update" || list.Items[1].Changed != nil {
		t.Errorf("its changes are %s", raw)
	}
	audited, err := os.ReadFile(log)
	harness.Must(t, err)
	for _, change := range list.Items {
		if change.Address != "127.0.0.1" || change.AuditID == "" || !strings.Contains(string(audited), change.AuditID) {
			t.Errorf("revision %s: %s from %q has the audit id %q, which must be in the log", change.Name, change.Operation, change.Address, change.AuditID)
		}
	}
	err = c.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/secrets/door").Param("resourceVersion", leaked.ResourceVersion).
		Param("resourceVersionMatch", "Exact").Do(t.Context()).Error()
	if !apierrors.IsNotFound(err) {
		t.Errorf("the purged version: %v", err)
	}
	now, err := secrets.Get(t.Context(), "door", metav1.GetOptions{})
	if err != nil || string(now.Data["code"]) != "rotated" {
		t.Errorf("the Secret is %v, %v", now, err)
	}
	purgesClusterWide(t, s)
	s.Stop(t)
}
