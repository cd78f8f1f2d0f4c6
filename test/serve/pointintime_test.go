package serve

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// TestPointInTimeRecovery restores a base backup and an archive of Postgres to a moment, serves it, and repeats this. Each time
// the state is that of the moment, and no version is used twice.
func TestPointInTimeRecovery(t *testing.T) {
	t.Parallel()
	source := harness.NewPostgresServer(t)
	source.BaseBackup(t)
	database := []string{"--datastore", source.DSN()}
	s := serve(t, database)
	c := client(t, s.Kubeconfig)
	setData(t, c, "kept", "then")
	var moment time.Time
	harness.Must(t, harness.OpenDatabase(t, harness.Engine{Datastore: source.DSN()}).QueryRow("SELECT clock_timestamp()").Scan(&moment))
	setData(t, c, "kept", "later")
	last := setData(t, c, "new", "later")
	s.Stop(t)
	harness.Must(t, source.Stop())

	for range 2 {
		database := []string{"--datastore", source.Restore(t, moment).DSN()}
		s := serveIn(t, s.DataDir, database)
		c := client(t, s.Kubeconfig)
		if kept, added := data(t, c, "kept"), data(t, c, "new"); kept != "then" || added != "" {
			t.Errorf("the state of the moment is %q, and what came later %q", kept, added)
		}
		_, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: last, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("a list at a lost revision returns %v", err)
		}
		version := setData(t, c, "new", "again")
		if number(t, version) <= number(t, last) {
			t.Errorf("version %s comes after %s", version, last)
		}
		last = version
		s.Stop(t)
		if text := succeeds(t, append([]string{"check"}, database...)); !strings.Contains(text, "nothing wrong") {
			t.Errorf("the check prints %s", text)
		}
	}
}
