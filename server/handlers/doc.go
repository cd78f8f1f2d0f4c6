// Package handlers serves the built-in API over HTTP: it matches a path with one of a few patterns, looks the resource up
// in a map, and calls the verb of k8s.io/apiserver/pkg/endpoints/handlers that the resource's storage supports. It also
// serves the discovery documents of what it serves.
//
// What a path, a method or a media type that isn't served is answered with follows kube-apiserver, which routes with
// go-restful; see refusal.go. Requests for groups that are not built in go to Config.Custom.
//
// Every request must have passed filters that put its RequestInfo, its user, a warning recorder and an audit context into
// the request's context; the verbs take these for granted.
package handlers
