package fleet

import (
	"net/http"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/test/harness"
)

// members returns the clusters of a pool, by whether they are claimed.
func (h *fleetHost) members(t *testing.T) (waiting, claimed []string) {
	t.Helper()
	list := v1alpha1.ClusterList{}
	harness.Must(t, h.raw(t, h.kube, http.MethodGet, h.path("clusters"), nil, &list))
	for _, c := range list.Items {
		switch {
		case c.DeletionTimestamp != nil:
		case c.Status.ClaimedBy != "":
			claimed = append(claimed, c.Name)
		default:
			waiting = append(waiting, c.Name)
		}
	}
	return waiting, claimed
}

func (h *fleetHost) pool(t *testing.T, what string, holds func(v1alpha1.ClusterPoolStatus) bool) {
	t.Helper()
	harness.Eventually(t, "the pool "+what, func() bool {
		p := v1alpha1.ClusterPool{}
		harness.Must(t, h.raw(t, h.kube, http.MethodGet, h.path("clusterpools", "ci"), nil, &p))
		return holds(p.Status)
	})
}

func testPool(t *testing.T, h *fleetHost) {
	harness.Must(t, h.raw(t, h.kube, http.MethodPost, h.path("clusterpools"),
		`{"apiVersion": "fleet.sqube.io/v1alpha1", "kind": "ClusterPool", "metadata": {"name": "ci"}, "spec": {"replicas": 2, "template": {"labels": {"for": "ci"}}}}`, nil))
	h.pool(t, "is full", func(s v1alpha1.ClusterPoolStatus) bool { return s.Ready == 2 && s.Replicas == 2 })

	// More claims at once than there are clusters: each gets its own.
	const claims = 4
	h.allow(t, "job", rbacv1.PolicyRule{Resources: []string{"clusterpools/claim", "clusters/release"}, Verbs: []string{"create"}})
	h.allow(t, "other", rbacv1.PolicyRule{Resources: []string{"clusters/release"}, Verbs: []string{"create"}})
	job := h.as(t, "job")
	type claim struct {
		config *rest.Config
		status v1alpha1.CredentialsStatus
		err    error
	}
	got := make(chan claim, claims)
	for range claims {
		go func() {
			config, status, err := h.given(t, job, h.path("clusterpools", "ci", "claim"))
			got <- claim{config, status, err}
		}()
	}
	names := map[string]bool{}
	var last claim
	for range claims {
		last = <-got
		harness.Must(t, last.err)
		if names[last.status.Cluster] {
			t.Errorf("%s was claimed twice", last.status.Cluster)
		}
		names[last.status.Cluster] = true
		keep(t, unlimited(t, last.config), "mine")
	}
	h.pool(t, "is full again", func(s v1alpha1.ClusterPoolStatus) bool { return s.Ready == 2 && s.Claimed == claims })
	c, err := h.get(t, last.status.Cluster)
	harness.Must(t, err)
	if c.Status.ClaimedBy != "job" || c.Status.Expires == nil || c.Labels["for"] != "ci" {
		t.Errorf("the claimed cluster is %+v", c)
	}

	// Who has claimed it gives it back, and nobody else.
	release := h.path("clusters", c.Name, "release")
	if err := h.raw(t, h.as(t, "other"), http.MethodPost, release, "{}", nil); !apierrors.IsForbidden(err) {
		t.Errorf("another user released the cluster: %v", err)
	}
	harness.Must(t, h.raw(t, job, http.MethodPost, release, "{}", nil))
	h.untilGone(t, c.Name)

	// Another template replaces those that wait.
	before, _ := h.members(t)
	harness.Must(t, h.raw(t, h.kube, http.MethodPatch, h.path("clusterpools", "ci"), `{"spec": {"replicas": 3, "template": {"labels": {"for": "cd"}}}}`, nil))
	harness.Eventually(t, "the clusters are of the new template", func() bool {
		waiting, _ := h.members(t)
		for _, name := range waiting {
			if name == before[0] || name == before[1] {
				return false
			}
		}
		return len(waiting) == 3
	})
	harness.Must(t, h.raw(t, h.kube, http.MethodPatch, h.path("clusterpools", "ci", "scale"), `{"spec": {"replicas": 1}}`, nil))
	harness.Eventually(t, "the pool has shrunk", func() bool { waiting, _ := h.members(t); return len(waiting) == 1 })

	harness.Must(t, h.raw(t, h.kube, http.MethodDelete, h.path("clusterpools", "ci"), nil, nil))
	harness.Eventually(t, "only claimed clusters are left", func() bool {
		waiting, claimed := h.members(t)
		return len(waiting) == 0 && len(claimed) == claims-1
	})
}
