package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestPurgedValuesAreGone purges Secrets, of which some versions are packed and some are not yet, and looks for their values in the files of
// the database: while the server runs, after it has been killed, and after it has stopped.
func TestPurgedValuesAreGone(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		t.Parallel()
		s := serve(t, append([]string{"--datastore", engine.Datastore}, packing...))
		c := client(t, s.Kubeconfig)
		secrets := c.CoreV1().Secrets("default")
		var former [][]byte
		var now []*corev1.Secret
		const objects = 60
		for i := range objects {
			secret, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("leaked-%d", i)}}, metav1.CreateOptions{})
			harness.Must(t, err)
			now = append(now, secret)
		}
		change := func() {
			for i, secret := range now {
				if value, ok := secret.Data["code"]; ok {
					former = append(former, value)
				}
				secret.Data = map[string][]byte{"code": bytes.Repeat([]byte(rand.Text()), 1+i%20*3)}
				var err error
				now[i], err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
				harness.Must(t, err)
			}
		}
		for range 3 {
			change()
		}
		packed(t, s, c)
		change()
		files := filesOf(t, engine)
		if found := foundIn(t, files, former); found < objects {
			t.Fatalf("only %d former values are in the files before the purge", found)
		}
		for i := range objects {
			answer, err := c.CoreV1().RESTClient().Delete().AbsPath("/apis/history.sqube.io/v1alpha1/namespaces/default/changes").
				Param("fieldSelector", fmt.Sprintf("resource=secrets,name=leaked-%d", i)).DoRaw(t.Context())
			harness.Must(t, err)
			var status metav1.Status
			harness.Must(t, json.Unmarshal(answer, &status))
			said := fmt.Sprintf("the earlier versions of secrets default/leaked-%d are purged", i)
			if outside := strings.Contains(status.Message, "Postgres' write-ahead log"); !strings.HasPrefix(status.Message, said) || outside != (engine.Name == "postgres") {
				t.Errorf("the answer is %s", answer)
			}
		}
		gone := func(when string) {
			harness.Retry(t, "former values are gone "+when, func() error {
				_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "later-"}}, metav1.CreateOptions{})
				if found := foundIn(t, files, former); err == nil && found > 0 {
					err = fmt.Errorf("%d former values are in the files", found)
				}
				return err
			})
		}
		gone("once they would have been packed")
		s.Kill(t)
		if found := foundIn(t, files, former); found > 0 {
			t.Errorf("killed, the server leaves %d former values", found)
		}
		s.Start(t)
		for i, secret := range now {
			if got, err := secrets.Get(t.Context(), secret.Name, metav1.GetOptions{}); err != nil || !bytes.Equal(got.Data["code"], now[i].Data["code"]) {
				t.Errorf("%s is %v, %v", secret.Name, got, err)
			}
		}
		s.Stop(t)
		if found := foundIn(t, files, former); found > 0 {
			t.Errorf("stopped, the server leaves %d former values", found)
		}
		succeeds(t, []string{"check", "--datastore", engine.Datastore})
	})
}

// filesOf returns a function that lists the files of a database, as they are on disk: on Postgres those of its tables and indexes.
func filesOf(t *testing.T, engine harness.Engine) func() string {
	t.Helper()
	if path, ok := strings.CutPrefix(engine.Datastore, "sqlite://"); ok {
		return func() string { return filepath.Dir(path) }
	}
	db := harness.OpenDatabase(t, engine)
	var folder string
	harness.Must(t, db.QueryRowContext(t.Context(), "SELECT current_setting('data_directory') || '/base/' || oid FROM pg_database WHERE datname = current_database()").Scan(&folder))
	return func() string {
		checkpoint(t, db)
		return folder
	}
}

func checkpoint(t *testing.T, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(context.WithoutCancel(t.Context()), "CHECKPOINT")
	harness.Must(t, err)
}

// foundIn counts the values that are in files, as they are or in base64.
func foundIn(t *testing.T, folder func() string, values [][]byte) (found int) {
	t.Helper()
	var all []byte
	harness.Must(t, filepath.WalkDir(folder(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) { // removed meanwhile
			return nil
		}
		all = append(all, text...)
		return err
	}))
	for _, value := range values {
		const piece = 24 // bytes of a value, all of it if it is short
		value = value[:piece]
		if bytes.Contains(all, value) || bytes.Contains(all, []byte(base64.StdEncoding.EncodeToString(value))) {
			found++
		}
	}
	return found
}

// purgesClusterWide purges what has no namespace. That takes the right in all namespaces, and of a Namespace remains when it was purged.
func purgesClusterWide(t *testing.T, s *sqube.Server) {
	t.Helper()
	kubeconfig := s.Kubeconfig
	c := client(t, kubeconfig)
	const path = "/apis/history.sqube.io/v1alpha1/changes"
	role, err := c.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "was"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	role.Labels = map[string]string{"a": "b"}
	_, err = c.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
	harness.Must(t, err)
	space, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "was"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	space.Labels = map[string]string{"a": "b"}
	_, err = c.CoreV1().Namespaces().Update(t.Context(), space, metav1.UpdateOptions{})
	harness.Must(t, err)

	kubectlPrints(t, kubeconfig, "create", "clusterrole", "purges", "--verb=deletecollection", "--resource=changes.history.sqube.io")
	kubectlPrints(t, kubeconfig, "create", "rolebinding", "purges", "--clusterrole=purges", "--user=local", "-n", "was")
	kubectlPrints(t, kubeconfig, "create", "clusterrolebinding", "purges", "--clusterrole=purges", "--user=global")
	purge := func(user, selector string) error {
		return c.CoreV1().RESTClient().Delete().AbsPath(path).Param("fieldSelector", selector).SetHeader("Impersonate-User", user).Do(t.Context()).Error()
	}
	const ofRole = "resource=clusterroles.rbac.authorization.k8s.io,name=was,namespace="
	if err := purge("local", ofRole); !apierrors.IsForbidden(err) {
		t.Errorf("with the right in a namespace: %v", err)
	}
	for _, wrong := range []string{"", "name=was,namespace=", "resource=namespaces,namespace=", "resource=namespaces,name=was", ofRole + ",user=jane"} {
		if err := purge("global", wrong); !apierrors.IsBadRequest(err) {
			t.Errorf("purging %q: %v", wrong, err)
		}
	}
	harness.Must(t, purge("global", ofRole))
	if out := succeeds(t, []string{"history", "purge", "namespace/was", "--kubeconfig", kubeconfig}); !strings.HasPrefix(out, "the earlier versions of namespaces was are purged") {
		t.Errorf("the command prints %s", out)
	}
	packed(t, s, c)
	raw, err := c.CoreV1().RESTClient().Get().AbsPath(path).Param("fieldSelector", "name=was,namespace=").DoRaw(t.Context())
	harness.Must(t, err)
	var list changes.ChangeList
	harness.Must(t, json.Unmarshal(raw, &list))
	purged := map[string]int{}
	for _, change := range list.Items {
		if change.Operation == "purge" && !change.CreationTimestamp.IsZero() {
			purged[change.Object.Resource]++
		}
	}
	if purged["namespaces"] != 1 || purged["clusterroles"] != 1 {
		t.Errorf("the changes are %s", raw)
	}
}
