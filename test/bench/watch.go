package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
)

// watchConfigMaps measures watches of all ConfigMaps that report new ones: those that come at a pace per second, which the server has
// delivered before the next one comes, or as many as it can take for 0.
func watchConfigMaps(pace int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		k := configMaps("watched-" + strconv.Itoa(pace))
		return fanOut{
			collection:  k.collection,
			watches:     slices.Repeat([]string{k.collection}, s.sizes.Watchers),
			connections: s.sizes.Watchers,
			expected:    func(int) int { return s.sizes.Events },
			changes:     s.sizes.Events,
			pace:        pace,
			change:      func(i int) request { return post(k.collection, k.body(k.name(i), 0)) },
			unwatched:   func(i int) request { return post(k.collection, k.body("un"+k.name(i), 0)) },
			mark:        `"name":"` + k.prefix + "-",
		}.run(s, ctx)
	}
}

// watchesPerConnection is less than servers allow per HTTP/2 connection: kube-apiserver allows 100.
const watchesPerConnection = 50

// updateStatus updates the status of pods while each node's pods are watched, as by kubelets.
func updateStatus(updates int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		watches := make([]string, s.sizes.Nodes)
		expected := make([]int, s.sizes.Nodes)
		for i := range watches {
			watches[i] = onNode(i)
		}
		pod := func(update int) int { return update % s.sizes.Pods }
		change := func(i int) request {
			body := fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":"10.1.%d.%d","conditions":[`+
				`{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","message":"update-%06d"}]}}`, pod(i)/250%250, pod(i)%250, i)
			return patch(podsPath+"/"+podName(pod(i))+"/status", mediaStrategicPatch, body)
		}
		for i := range updates {
			expected[s.sizes.nodeOf(pod(i))]++
		}
		return fanOut{
			collection:  podsPath,
			watches:     watches,
			connections: connectionsOf(len(watches), watchesPerConnection),
			expected:    func(watch int) int { return expected[watch] },
			changes:     updates,
			change:      change,
			mark:        `"message":"update-`,
		}.run(s, ctx)
	}
}

// connectionsOf returns how many connections that many watches need, with so many on each.
func connectionsOf(watches, perConnection int) int {
	return (watches + perConnection - 1) / perConnection
}

// watchOne returns the path of a watch of the ith object alone.
func watchOne(k kind, i int) string {
	return k.collection + "?fieldSelector=" + url.QueryEscape("metadata.name="+k.name(i))
}
