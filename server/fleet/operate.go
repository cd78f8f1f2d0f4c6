package fleet

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// sleep puts a cluster to sleep, though somebody may have asked just now, and answers with the Cluster. The next request wakes it.
func (f *Fleet) sleep(_ http.ResponseWriter, r *http.Request, name types.NamespacedName) (any, error) {
	c := f.find(name)
	if c == nil {
		return nil, notFound(name)
	}
	c.stop(r.Context())
	if err := f.writeNews(r.Context(), c); err != nil && !apierrors.IsConflict(err) {
		return nil, err
	}
	return f.get(r.Context(), name)
}

// wakeUp wakes a cluster up, unless it is awake, and answers with the Cluster.
func (f *Fleet) wakeUp(_ http.ResponseWriter, r *http.Request, name types.NamespacedName) (any, error) {
	_, leave, err := f.visit(r.Context(), name)
	if err != nil {
		return nil, err
	}
	leave()
	return f.get(r.Context(), name)
}
