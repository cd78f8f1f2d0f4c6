// Package apiservices keeps an APIService object for every group version that this server itself serves, as
// kube-apiserver does: `kubectl get apiservices` lists them as Local and available.
//
// These objects only describe. Requests for an APIService that names a Service would have to be proxied to it, which
// belongs in front of the handlers of this server (upstream: kube-aggregator/pkg/apiserver, handler_proxy.go), next to
// the controller that checks whether such a Service can be reached (controllers/status/remote).
package apiservices
