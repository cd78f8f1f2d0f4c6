package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"sync"
	"sync/atomic"
)

// create creates objects of a kind.
func create(k kind, clients, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		bodies := k.bodies(n, 0)
		return s.create(ctx, k.collection, clients, n, func(i int) []byte { return bodies[i] })
	}
}

// create creates objects with these bodies.
func (s *session) create(ctx context.Context, collection string, clients, n int, body func(i int) []byte) (result, error) {
	var length atomic.Int64
	r, err := s.load(ctx, clients, n, func(ctx context.Context, c *client, i int) error {
		err := c.do(ctx, post(collection, body(i)))
		length.Store(int64(c.answer.Len()))
		return err
	})
	r.Bytes = length.Load()
	return r, err
}

// replace replaces each of the objects that create created, without a precondition. Each revision of their bodies is another change.
func replace(k kind, clients, n, revision int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		bodies := k.bodies(n, revision)
		return s.load(ctx, clients, n, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, put(k.path(i), bodies[i]))
		})
	}
}

// bodies returns the bodies of a write to each of n objects, so that no measurement includes making them.
func (k kind) bodies(n, revision int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = k.body(k.name(i), revision)
	}
	return all
}

// read reads n times one of the objects that create created.
func read(k kind, clients, objects, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		return s.load(ctx, clients, n, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, get(k.path(i%objects)))
		})
	}
}

// createPods creates the pods to be listed.
func createPods(clients int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		body, err := podBodies(s.sizes)
		if err != nil {
			return result{}, err
		}
		return s.create(ctx, podsPath, clients, s.sizes.Pods, body)
	}
}

// The maximum number of objects that are written repeatedly.
const (
	leaseObjects      = 1000
	deploymentObjects = 100
)

// renewLeases replaces Leases like kubelets, each time with the resourceVersion of the last response.
func renewLeases(clients, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		type lease struct {
			sync.Mutex
			resourceVersion []byte
		}
		held := make([]lease, min(leaseObjects, n))
		_, err := s.load(ctx, clients, len(held), func(ctx context.Context, c *client, i int) (err error) {
			if err = c.do(ctx, post(leases.collection, leases.body(leases.name(i), 0))); err == nil {
				held[i].resourceVersion, err = resourceVersion(c.answer.Bytes())
			}
			return err
		})
		if err != nil {
			return result{}, err
		}
		return s.load(ctx, clients, n, func(ctx context.Context, c *client, i int) (err error) {
			l := &held[i%len(held)]
			l.Lock()
			defer l.Unlock()
			body := withVersion(leases.body(leases.name(i%len(held)), 1+i/len(held)), l.resourceVersion)
			if err = c.do(ctx, put(leases.path(i%len(held)), body)); err == nil {
				l.resourceVersion, err = resourceVersion(c.answer.Bytes())
			}
			return err
		})
	}
}

// withVersion adds a resourceVersion to the JSON of an object.
func withVersion(body, version []byte) []byte {
	return bytes.Replace(body, []byte(`"metadata":{`), fmt.Appendf(nil, `"metadata":{"resourceVersion":%q,`, version), 1)
}

// resourceVersion finds the resourceVersion of an object or a list in its JSON.
func resourceVersion(object []byte) ([]byte, error) {
	_, rest, _ := bytes.Cut(object, []byte(`"resourceVersion":"`))
	version, _, found := bytes.Cut(rest, []byte(`"`))
	if !found || len(version) == 0 {
		return nil, fmt.Errorf("a response without resourceVersion: %.300s", object)
	}
	return bytes.Clone(version), nil
}

// patchDeployments changes the image of Deployments by strategic merge patches, like `kubectl set image`.
func patchDeployments(clients, n int) operation {
	return changeDeployments("patched", clients, n, func(k kind, i, revision int) request {
		body := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"server","image":%q}]}}}}`, deploymentImage(revision))
		return patch(k.path(i), mediaStrategicPatch, body)
	})
}

// applyDeployments changes the image of Deployments by server-side apply of the whole object.
func applyDeployments(clients, n int) operation {
	return changeDeployments("applied", clients, n, func(k kind, i, revision int) request {
		return patch(k.path(i)+"?fieldManager=bench&force=true", mediaApplyPatch, k.body(k.name(i), revision))
	})
}

// changeDeployments creates Deployments, which is not measured, and changes each of them in turn.
func changeDeployments(prefix string, clients, n int, change func(k kind, i, revision int) request) operation {
	return func(s *session, ctx context.Context) (result, error) {
		k, err := deployments(prefix)
		if err != nil {
			return result{}, err
		}
		objects := min(deploymentObjects, n)
		if _, err := create(k, clients, objects)(s, ctx); err != nil {
			return result{}, err
		}
		return s.load(ctx, clients, n, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, change(k, i%objects, 1+i/objects))
		})
	}
}

// certificateCRD defines Certificates with a schema typical of operators: nested objects, lists with keys, enumerations,
// patterns, defaults, an int-or-string, a free-form part, a status subresource and printer columns.
//
//go:embed certificate.crd.json
var certificateCRD []byte

// certificates are custom resources, which take 1.1 KB in a server with their defaults and managed fields.
var certificates = kind{collection("bench.example.com/v1", "certificates"), "frontend", func(name string, revision int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"bench.example.com/v1","kind":"Certificate","metadata":{"name":%q},`+
		`"spec":{"secretName":%[1]q,"dnsNames":["frontend.example.com"],"revisionHistoryLimit":%d,`+
		`"issuerRef":{"name":"production","kind":"ClusterIssuer"},"privateKey":{"algorithm":"ECDSA"},`+
		`"solvers":[{"name":"http","type":"HTTP01","port":"http"}]}}`, name, revision+1)
}}

// createCertificates creates them after their definition, whose cost is not measured.
func createCertificates(clients int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		if err := s.define(ctx, certificateCRD, certificates.collection); err != nil {
			return result{}, err
		}
		return create(certificates, clients, s.sizes.Customs)(s, ctx)
	}
}

// define creates a definition and waits until the server serves its objects.
func (s *session) define(ctx context.Context, definition []byte, collection string) error {
	c, err := s.dialer.dial(ctx)
	if err != nil {
		return err
	}
	defer clients{c}.close()
	if err := c.do(ctx, post(definitionsPath, definition)); err != nil {
		return err
	}
	return whenServed(ctx, retryAfter, func() error { return c.do(ctx, get(collection)) })
}
