// Package handlers serves the built-in API over HTTP: it matches a path with one of a few patterns, looks the resource up
// in a map, and calls the verb of k8s.io/apiserver/pkg/endpoints/handlers that the resource's storage supports. It also
// serves discovery for these resources.
//
// Responses for paths, methods and media types that are not served follow kube-apiserver, which routes with go-restful; see
// methods.go. Requests for groups that are not built in go to Config.Custom.
//
// Every request must have passed filters that put its RequestInfo, its user, a warning recorder and an audit context into
// its context; the verbs rely on them.
package handlers
