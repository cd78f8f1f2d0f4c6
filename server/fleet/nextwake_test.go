package fleet

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// TestNextWake checks that a cluster knows what time itself will do next, if the controller that does it runs.
func TestNextWake(t *testing.T) {
	engine, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sqube.db"))
	harness.Must(t, err)
	store, err := sqlstore.Open(t.Context(), engine, sqlstore.Options{})
	harness.Must(t, err)
	t.Cleanup(func() { store.Close() })
	now := time.Date(2030, 3, 1, 12, 30, 10, 0, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	all, api, none := v1alpha1.ControllersAll, v1alpha1.ControllersAPI, v1alpha1.ControllersNone
	for i, c := range []struct {
		group, resource, object string
		controllers             v1alpha1.Controllers
		want                    time.Duration // 0 for never
	}{
		{"batch", "cronjobs", `{"spec": {"schedule": "0 * * * *"}}`, all, 29*time.Minute + 50*time.Second},
		{"batch", "cronjobs", `{"spec": {"schedule": "0 20 * * *", "timeZone": "Asia/Tokyo"}}`, all, 22*time.Hour + 29*time.Minute + 50*time.Second},
		{"batch", "cronjobs", `{"spec": {"schedule": "0 * * * *", "suspend": true}}`, all, 0},
		{"batch", "cronjobs", `{"spec": {"schedule": "0 * * * *"}}`, api, 0},
		{"batch", "jobs", `{"spec": {"activeDeadlineSeconds": 100}, "status": {"startTime": "` + in(-time.Minute) + `"}}`, all, 40 * time.Second},
		{"batch", "jobs", `{"spec": {"activeDeadlineSeconds": 100}}`, all, 0},
		{"batch", "jobs", `{"spec": {"ttlSecondsAfterFinished": 100, "activeDeadlineSeconds": 5}, "status": {"startTime": "` + in(-time.Hour) +
			`", "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "` + in(-time.Minute) + `"}]}}`, all, 40 * time.Second},
		{"", "secrets", `{"type": "bootstrap.kubernetes.io/token", "data": {"expiration": "MjAzMC0wMy0wMVQxMjozMTowMFo="}}`, all, 50 * time.Second},
		{"", "secrets", `{"type": "bootstrap.kubernetes.io/token", "data": {"expiration": "MjAzMC0wMy0wMVQxMjozMTowMFo="}}`, api, 0},
		{"", "secrets", `{"type": "kubernetes.io/service-account-token", "metadata": {"labels": {"kubernetes.io/legacy-token-last-used": "2029-03-05"}}}`, api,
			4*24*time.Hour + 11*time.Hour + 29*time.Minute + 50*time.Second},
		{"certificates.k8s.io", "certificatesigningrequests", `{"metadata": {"creationTimestamp": "` + in(-23*time.Hour) + `"}}`, all, time.Hour},
		{"apps", "deployments", `{"spec": {"progressDeadlineSeconds": 600}, "status": {"conditions": [{"type": "Progressing", "status": "True", "lastUpdateTime": "` +
			in(-time.Minute) + `"}]}}`, all, 9 * time.Minute},
		{"sqube.io", "unconfirmed", `{"due": "` + in(time.Minute) + `"}`, none, time.Minute},
		{"sqube.io", "unconfirmed", `{"due": "` + in(time.Minute) + `", "left": true}`, none, 0},
		{"", "configmaps", `{}`, all, 0},
	} {
		t.Run(fmt.Sprint(i, " ", c.resource), func(t *testing.T) {
			if !json.Valid([]byte(c.object)) {
				t.Fatal("the object is no JSON")
			}
			w := sqlstore.Internal(sqlstore.Resource{Group: c.group, Name: c.resource}, "x", nil, []byte(c.object))
			w.UID = "uid"
			_, err := store.Write(t.Context(), w)
			harness.Must(t, err)
			next, err := nextWake(t.Context(), store, &v1alpha1.ClusterSpec{Controllers: c.controllers}, time.Time{}, now)
			harness.Must(t, err)
			if want := now.Add(c.want); c.want == 0 && !next.IsZero() || c.want != 0 && !next.Equal(want) {
				t.Errorf("got %s, want %s", next, want)
			}
			record, _, err := store.Get(t.Context(), w.Resource, "x")
			harness.Must(t, err)
			gone := sqlstore.Internal(w.Resource, "x", record, nil)
			gone.Operation, gone.UID = "delete", "uid"
			_, err = store.Write(t.Context(), gone)
			harness.Must(t, err)
		})
	}
}
