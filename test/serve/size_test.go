package serve

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestSizeIsBounded updates an object more often than versions may be kept, and checks in the metrics that they are removed.
func TestSizeIsBounded(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, []string{"--datastore", engine.Datastore, "--retention", "1h", "--retention-rows", "100", "--history=0", "--compact-interval", "200ms"})
		c := client(t, s.Kubeconfig)
		maps := c.CoreV1().ConfigMaps("default")
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "changing"}}
		created, err := maps.Create(t.Context(), object, metav1.CreateOptions{})
		harness.Must(t, err)
		const updates = 250
		for i := range updates {
			object.Data = map[string]string{"n": fmt.Sprint(i)}
			if object, err = maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		var found map[string]float64
		harness.Retry(t, "the excess is removed", func() error {
			found = sqube.StoreMetrics(t, c)
			if found["live_rows"] < 10 || found["superseded_rows"] > 100 || found["removed_rows_total"] < updates-100 || found["compaction_lag_seconds"] > 0 {
				return fmt.Errorf("the metrics are %v", found)
			}
			return nil
		})
		first, err := strconv.ParseFloat(created.ResourceVersion, 64)
		harness.Must(t, err)
		if found["compacted_revision"] <= first || found["revision"] < first+updates || found["database_bytes"] < 10_000 ||
			found["compaction_batch_duration_seconds_count"] == 0 || found["held_back"] != 0 ||
			found["write_duration_seconds_count"] < updates || found["group_writes_sum"] < updates {
			t.Errorf("the metrics are %v", found)
		}
		// SQLite's is emptied from time to time.
		if found["wal_bytes"] > 32<<20 || engine.Name == "postgres" && found["wal_bytes"] != 0 {
			t.Errorf("the write-ahead log has %v bytes", found["wal_bytes"])
		}
		_, err = maps.List(t.Context(), metav1.ListOptions{ResourceVersion: created.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("a list at a version that was removed returned %v", err)
		}
		watch, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: created.ResourceVersion})
		if err == nil {
			err = apierrors.FromObject((<-watch.ResultChan()).Object)
			watch.Stop()
		}
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch from a version that was removed returned %v", err)
		}
	})
}
