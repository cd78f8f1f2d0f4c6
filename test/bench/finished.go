package main

import (
	"context"
	"fmt"
	"net/http"
)

// finishedPhases measures a namespace full of pods that have ended: reads, and the ways to delete them.
func finishedPhases(n sizes) []phase {
	pods := get(podsPath)
	byPhase := func(phase string) request { return get(podsPath + "?fieldSelector=status.phase%3D" + phase) }
	cost := []row{p50, cpuMillis, databaseCPUMillis}
	each := []row{cpuMicros, databaseCPU, longest}
	return []phase{
		{phaseStart, false, (*session).start, nil},
		{"create Pod 4.8 KB, 32 clients", false, createPods(32), each},
		{"a pod ends, 16 clients", false, endPods, each},
		{"memory, all pods have ended", false, (*session).memory, memoryRows},
		{"list all, protobuf", false, list(pods.as(mediaProtobuf), 1, n.Lists), cost},
		{"list all as Table in chunks of 500", false, walkAll(pods.as(mediaTable), n.Pods), cost},
		{"label selector, 1 pod of 50", false, list(get(labelled(podsPath, selectedLabel)), 1, 4*n.Lists), cost},
		{"field selector of their phase, 1 pod of 3", false, list(byPhase("Failed"), 1, n.Lists), cost},
		{"field selector of another phase, none", false, list(byPhase("Running"), 1, 20*n.Lists), cost},
		{"delete one after the other, 16 clients", false, deletePods, each},
		{"delete a third by a field selector", false, deleteFailed, []row{seconds, cpuMicros, databaseCPU}},
		{"delete the namespace, with a half of them", false, deleteNamespace, []row{seconds, cpuMicros, databaseCPU}},
		{"memory, nothing left", false, (*session).memory, memoryRows},
	}
}

// finished returns the phase in which the ith pod has ended.
func finished(i int) string {
	if i%3 == 0 {
		return "Failed"
	}
	return "Succeeded"
}

// endPods reports all pods as ended.
func endPods(s *session, ctx context.Context) (result, error) {
	return s.load(ctx, 16, s.sizes.Pods, func(ctx context.Context, c *client, i int) error {
		body := fmt.Appendf(nil, `{"status":{"phase":%q,"conditions":[{"type":"Ready","status":"False","reason":"PodCompleted"}]}}`, finished(i))
		return c.do(ctx, patch(podsPath+"/"+podName(i)+"/status", mediaMergePatch, body))
	})
}

// deletePods deletes a sixth of the pods, all of which have succeeded, like `kubectl delete pods --all`.
func deletePods(s *session, ctx context.Context) (result, error) {
	return s.load(ctx, 16, s.sizes.Pods/6, func(ctx context.Context, c *client, i int) error {
		return c.do(ctx, request{method: http.MethodDelete, path: podsPath + "/" + podName(3*i+1)})
	})
}

// deleteFailed deletes by one request, which it repeats if the server ends it before all are deleted.
func deleteFailed(s *session, ctx context.Context) (result, error) {
	r, err := s.load(ctx, 1, 1, func(ctx context.Context, c *client, _ int) error {
		return until(ctx, "the failed pods are deleted", func() (bool, error) {
			err := c.do(ctx, request{method: http.MethodDelete, path: podsPath + "?fieldSelector=status.phase%3DFailed"})
			return err == nil, err
		})
	})
	return perPart(r, s.sizes.Pods/3), err
}

// deleteNamespace deletes the namespace and waits until it is gone.
func deleteNamespace(s *session, ctx context.Context) (result, error) {
	path := "/api/v1/namespaces/" + namespace
	r, err := s.load(ctx, 1, 1, func(ctx context.Context, c *client, _ int) error {
		if err := c.do(ctx, request{method: http.MethodDelete, path: path}); err != nil {
			return err
		}
		return until(ctx, "the namespace is gone", func() (bool, error) {
			err := c.do(ctx, get(path))
			return isStatus(err, http.StatusNotFound), nil
		})
	})
	return perPart(r, s.sizes.Pods/2), err
}

// perPart divides the CPU time of one operation by the number of objects that it concerns.
func perPart(r result, objects int) result {
	r.CPU, r.DatabaseCPU = r.CPU/figure(max(1, objects)), r.DatabaseCPU/figure(max(1, objects))
	return r
}
