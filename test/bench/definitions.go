package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// definitionSteps are the numbers of definitions that are compared, as shares of all, in percent.
var definitionSteps = []struct {
	percent int
	of      string
}{{1, "a hundredth of the definitions"}, {10, "a tenth of them"}, {100, "all of them"}}

// definitionPhases measures what CustomResourceDefinitions cost a server that nobody asks for their objects.
func definitionPhases(n sizes) []phase {
	all := []phase{
		{phaseStart, false, (*session).start, nil},
		{"restart without definitions", false, (*session).restartSettled, nil},
	}
	before := 0
	for _, step := range definitionSteps {
		begin, end := before, max(before+1, n.Definitions*step.percent/100)
		all = append(all,
			phase{step.of + ": create one", false, defineAll(begin, end), []row{cpuMillis}},
			phase{step.of + ": restart", false, restartDefined(end), []row{rssEach, anonymousEach, cpuMillis}},
			phase{step.of + ": one more, until it has an object", false, (*session).defineMore, []row{p50.with(true), longest}},
			phase{step.of + ": aggregated discovery and /openapi/v3", false, (*session).readDocuments, []row{cpuMillis}})
		before = end
	}
	return all
}

// definitionFiles uses the YAML files in a folder for definitions.
func (s *sizes) definitionFiles(folder string) (err error) {
	s.DefinedBy, err = filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err == nil && len(s.DefinedBy) == 0 {
		return fmt.Errorf("no *.yaml in %s", folder)
	}
	return err
}

// definition is the one of that number.
func (s sizes) definition(i int) ([]byte, error) {
	if len(s.DefinedBy) == 0 {
		_, _, body := generated(i)
		return body, nil
	}
	content, err := os.ReadFile(s.DefinedBy[i])
	if err != nil {
		return nil, err
	}
	body, err := yaml.YAMLToJSON(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.DefinedBy[i], err)
	}
	return body, nil
}

// generated is the definition of that number: 60 strings and three rules, in groups of 20.
func generated(i int) (group, plural string, body []byte) {
	group, plural = fmt.Sprintf("group%d.bench.example.com", i/20), fmt.Sprintf("things%d", i)
	var fields strings.Builder
	for f := range 60 {
		fmt.Fprintf(&fields, `"field%d":{"type":"string","description":"Field %[1]d of thing %d, which its controller reads."},`, f, i)
	}
	return group, plural, fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.%[2]s"},`+
		`"spec":{"group":%[2]q,"scope":"Namespaced","names":{"plural":%[1]q,"singular":"thing%[3]d","kind":"Thing%[3]d"},`+
		`"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{`+
		`"spec":{"type":"object","properties":{%[4]s"last":{"type":"string"}},"x-kubernetes-validations":[`+
		`{"rule":"!has(self.field1) || self.field1.startsWith('a')"},{"rule":"!has(self.field2) || self.field2 != 'none'"},`+
		`{"rule":"!has(self.field3) || self.field3.size() < 100"}]},"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`,
		plural, group, i, fields.String())
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// defineAll creates the definitions of these numbers, and waits until the server has nothing more to do with them.
func defineAll(begin, end int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		var m sample
		err := s.observe(&m, func() error {
			creates, err := s.sample(ctx, 4, end-begin, func(ctx context.Context, c *client, i int) error {
				body, err := s.sizes.definition(begin + i)
				if err != nil {
					return err
				}
				return c.do(ctx, post(definitionsPath, body))
			})
			m.latencies = creates.latencies
			return errors.Join(err, s.rests(ctx))
		})
		return m.result(4, end-begin), err
	}
}

// restartSettled restarts the server, waits until it rests, and returns its memory and the CPU time since its start.
func (s *session) restartSettled(ctx context.Context) (result, error) {
	if err := s.server.Restart(ctx); err != nil {
		return result{}, err
	}
	if err := s.rests(ctx); err != nil {
		return result{}, err
	}
	r, err := s.memory(ctx)
	started, startedErr := s.started()
	r.Seconds, r.CPU = started.Seconds, started.CPU
	s.bare = r
	return r, errors.Join(err, startedErr)
}

// rests waits until the server uses less than a tenth of a core.
func (s *session) rests(ctx context.Context) error {
	return until(ctx, "the server rests", func() (bool, error) {
		var m sample
		err := s.observe(&m, func() error { return wait(ctx, s.sizes.Rest/10) })
		return err == nil && 10*m.cpu < m.wall, err
	})
}

// restartDefined returns what a restart with n definitions takes for each, beyond one without any.
func restartDefined(n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		bare := s.bare
		r, err := s.restartSettled(ctx)
		s.bare = bare
		r.CPU = (r.CPU - bare.CPU) / figure(n)
		r.RSSEach, r.AnonymousEach = 1024*(r.RSS-bare.RSS)/figure(n), 1024*(r.Anonymous-bare.Anonymous)/figure(n)
		return r, err
	}
}

// defineMore creates further definitions, each with an object as soon as the server takes it, and deletes them.
func (s *session) defineMore(ctx context.Context) (result, error) {
	const more, first = 10, 10_000_000
	r, err := s.load(ctx, 1, more, func(ctx context.Context, c *client, i int) error {
		group, plural, body := generated(first + i)
		if err := c.do(ctx, post(definitionsPath, body)); err != nil {
			return err
		}
		object := fmt.Appendf(nil, `{"apiVersion":"%s/v1","kind":"Thing%d","metadata":{"name":"one"},"spec":{"field1":"a"}}`, group, first+i)
		return whenServed(ctx, time.Millisecond, func() error {
			return c.do(ctx, post("/apis/"+group+"/v1/namespaces/"+namespace+"/"+plural, object))
		})
	})
	if err != nil {
		return r, err
	}
	_, err = s.load(ctx, 1, more, func(ctx context.Context, c *client, i int) error {
		group, plural, _ := generated(first + i)
		return c.do(ctx, request{method: http.MethodDelete, path: definitionsPath + "/" + plural + "." + group})
	})
	return r, errors.Join(err, s.rests(ctx))
}

// readDocuments reads what clients read first to find out what a server has.
func (s *session) readDocuments(ctx context.Context) (result, error) {
	return s.load(ctx, 1, 50, func(ctx context.Context, c *client, _ int) error {
		if err := c.do(ctx, get("/apis").as("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")); err != nil {
			return err
		}
		return c.do(ctx, get("/openapi/v3"))
	})
}
