package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// transactionPhases compare transactions with as many requests, one after the other: 500 ConfigMaps, and the 60 objects of a Helm chart.
func transactionPhases(n sizes) []phase {
	rounds, objects := max(1, n.Writes/600), min(n.Writes, 500)
	shown := []row{seconds, cpuMicros, databaseCPU}
	return []phase{
		{phaseStart, false, (*session).start, nil},
		{"create ConfigMap, 64 clients", false, create(configMaps("warm"), 64, n.Writes), nil},
		{"500 ConfigMaps, a request for each", false, singly(rounds, createdMaps("single", objects)), shown},
		{"500 ConfigMaps, one transaction", false, wholly(rounds, createdMaps("whole", objects)), shown},
		{"apply the 60 objects of a chart, a request for each", false, singly(rounds, chart("single")), shown},
		{"apply the 60 objects of a chart, one transaction", false, wholly(rounds, chart("whole")), shown},
		{"apply them again unchanged, a request for each", false, singly(rounds, chart("single")), shown},
		{"apply them again unchanged, one transaction", false, wholly(rounds, chart("whole")), shown},
	}
}

// writtenObject is an object that a request or an operation of a transaction writes.
type writtenObject struct {
	verb string // create or apply
	kind kind
	name string
	body []byte
}

// writes returns what one round writes.
type writes func(round int) ([]writtenObject, error)

// createdMaps are ConfigMaps of 1 KB.
func createdMaps(prefix string, objects int) writes {
	return func(round int) ([]writtenObject, error) {
		k := configMaps(fmt.Sprintf("%s-%d", prefix, round))
		all := make([]writtenObject, objects)
		for i, body := range k.bodies(objects, 0) {
			all[i] = writtenObject{"create", k, k.name(i), body}
		}
		return all, nil
	}
}

// chart has as many objects of each kind as charts of applications with some services have.
func chart(prefix string) writes {
	return func(round int) ([]writtenObject, error) {
		release := fmt.Sprintf("%s-release-%d", prefix, round)
		workloads, err := deployments(release)
		if err != nil {
			return nil, err
		}
		plain := func(version, resource, kindName, rest string) kind {
			return kind{collection(version, resource), release, func(name string, _ int) []byte {
				return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":{"app.kubernetes.io/instance":%q,"app.kubernetes.io/managed-by":"Helm"}},%s}`,
					version, kindName, name, release, strings.ReplaceAll(rest, "NAME", name))
			}}
		}
		const rbac = "rbac.authorization.k8s.io"
		var all []writtenObject
		for _, part := range []struct {
			kind kind
			n    int
		}{
			{plain("v1", "serviceaccounts", "ServiceAccount", `"automountServiceAccountToken":false`), 7},
			{plain("v1", "secrets", "Secret", `"type":"Opaque","stringData":{"user":"admin","password":"0123456789abcdef"}`), 6},
			{plain("v1", "configmaps", "ConfigMap", `"data":{"dashboard.json":"`+strings.Repeat("x", 4096)+`"}`), 14},
			{plain(rbac+"/v1", "roles", "Role", `"rules":[{"apiGroups":[""],"resources":["pods","services"],"verbs":["get","list","watch"]}]`), 7},
			{plain(rbac+"/v1", "rolebindings", "RoleBinding", `"roleRef":{"apiGroup":"`+rbac+`","kind":"Role","name":"NAME"},"subjects":[{"kind":"ServiceAccount","name":"NAME","namespace":"`+namespace+`"}]`), 7},
			{plain("v1", "services", "Service", `"spec":{"clusterIP":"None","ports":[{"name":"http","port":80,"targetPort":"http"}],"selector":{"app":"NAME"}}`), 10},
			{workloads, 7},
			{plain("networking.k8s.io/v1", "ingresses", "Ingress", `"spec":{"rules":[{"host":"NAME.example.com","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"NAME","port":{"name":"http"}}}}]}}]}`), 2},
		} {
			for i, body := range part.kind.bodies(part.n, 0) {
				all = append(all, writtenObject{"apply", part.kind, part.kind.name(i), body})
			}
		}
		return all, nil
	}
}

// singly writes each object with a request, one after the other.
func singly(rounds int, made writes) operation {
	return func(s *session, ctx context.Context) (result, error) {
		var all []writtenObject
		for round := range rounds {
			objects, err := made(round)
			if err != nil {
				return result{}, err
			}
			all = append(all, objects...)
		}
		return s.load(ctx, 1, len(all), func(ctx context.Context, c *client, i int) error {
			o := all[i]
			if o.verb == "apply" {
				return c.do(ctx, patch(o.kind.collection+"/"+o.name+"?fieldManager=bench", mediaApplyPatch, o.body))
			}
			return c.do(ctx, post(o.kind.collection, o.body))
		})
	}
}

// transactionsPath is where transactions are made. Objects that name no namespace are in this one.
var transactionsPath = collection("history.sqube.io/v1alpha1", "transactions")

// wholly writes the objects of each round with a transaction. The CPU time is that of one object.
func wholly(rounds int, made writes) operation {
	return func(s *session, ctx context.Context) (result, error) {
		bodies, parts := make([][]byte, rounds), 0
		for round := range rounds {
			objects, err := made(round)
			if err != nil {
				return result{}, err
			}
			parts = len(objects)
			operations := make([]map[string]any, parts)
			for i, o := range objects {
				operations[i] = map[string]any{"verb": o.verb, "object": json.RawMessage(o.body)}
				if o.verb == "apply" {
					operations[i]["fieldManager"] = "bench"
				}
			}
			bodies[round], err = json.Marshal(map[string]any{
				"apiVersion": "history.sqube.io/v1alpha1", "kind": "Transaction", "metadata": map[string]any{"generateName": "bench-"},
				"spec": map[string]any{"operations": operations},
			})
			if err != nil {
				return result{}, err
			}
		}
		r, err := s.load(ctx, 1, rounds, func(ctx context.Context, c *client, i int) error {
			if err := c.do(ctx, post(transactionsPath, bodies[i])); err != nil {
				return err
			}
			if n := bytes.Count(c.answer.Bytes(), []byte(`"verb":`)); n < parts {
				return fmt.Errorf("a transaction has the results of %d operations of %d", n, parts)
			}
			return nil
		})
		return perPart(r, parts), err
	}
}
