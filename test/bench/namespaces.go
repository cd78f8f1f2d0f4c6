package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The phases of `bench namespaces`.
const (
	phaseNamespaces   = "create namespaces, 8 clients, until each has its ConfigMap"
	phaseNamespaceEnd = "delete a fifth of the namespaces, 1 client, until they are gone"
)

// namespacePhases measures what it takes to hold many namespaces and to delete some, for which the namespace controller asks about every
// resource.
func namespacePhases(sizes) []phase {
	return []phase{
		{phaseStart, false, (*session).start},
		{phaseNamespaces, false, (*session).fillNamespaces},
		{phaseLoaded, false, (*session).memory},
		{phaseNamespaceEnd, false, (*session).endNamespaces},
	}
}

// namespaceRows are the lines of its table.
var namespaceRows = []row{
	{"namespaces made, with what controllers add", "per s", phaseNamespaces, "%.0f", perSecond, false, ""},
	{"", "CPU ms each", phaseNamespaces, "%.1f", cpuMilliseconds, true, ""},
	{"memory with all of them", "RSS MiB", phaseLoaded, "%.0f", rss, true, ""},
	{"delete one, with all the others there", "p50 ms", phaseNamespaceEnd, "%.1f", p50, true, ""},
	{"", "p99 ms", phaseNamespaceEnd, "%.1f", p99, true, ""},
	{"until a fifth of them is gone", "s", phaseNamespaceEnd, "%.1f", seconds, true, ""},
	{"", "CPU ms each", phaseNamespaceEnd, "%.1f", cpuMilliseconds, true, ""},
}

var cpuMilliseconds = func(r result) figure { return r.CPU / 1000 }

func numbered(i int) string { return fmt.Sprintf("numbered-%d", i) }

// fillNamespaces creates the namespaces, and waits until the controllers have added the ConfigMap with the cluster's CA to each. For the
// figures see endNamespaces.
func (s *session) fillNamespaces(ctx context.Context) (result, error) {
	if err := s.openCluster(ctx); err != nil {
		return result{}, err
	}
	n := s.sizes.Namespaces
	var m sample
	err := s.observe(&m, func() error {
		creates, err := s.sample(ctx, 8, n, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, post("/api/v1/namespaces", []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+numbered(i)+`"}}`)))
		})
		if err != nil {
			return err
		}
		m.latencies = creates.latencies
		return until(ctx, "each namespace has its ConfigMap", func() (bool, error) {
			options := listCached
			options.FieldSelector = "metadata.name=kube-root-ca.crt"
			list, err := s.cluster.CoreV1().ConfigMaps("").List(ctx, options)
			return err == nil && len(list.Items) >= n, err
		})
	})
	return m.result(8, n), err
}

// endNamespaces deletes a fifth of the namespaces one after the other, and waits until they are gone. The latencies are those of the
// requests; the seconds and the CPU time include what the controllers do.
func (s *session) endNamespaces(ctx context.Context) (result, error) {
	n := max(1, s.sizes.Namespaces/5)
	var m sample
	err := s.observe(&m, func() error {
		deletes, err := s.sample(ctx, 1, n, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, request{method: http.MethodDelete, path: "/api/v1/namespaces/" + numbered(i)})
		})
		if err != nil {
			return err
		}
		m.latencies = deletes.latencies
		return until(ctx, "the deleted namespaces are gone", func() (bool, error) {
			list, err := s.cluster.CoreV1().Namespaces().List(ctx, listCached)
			return err == nil && !slices.ContainsFunc(list.Items, func(n corev1.Namespace) bool { return n.DeletionTimestamp != nil }), err
		})
	})
	return m.result(1, n), err
}
