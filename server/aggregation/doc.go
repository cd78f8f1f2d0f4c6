// Package aggregation is the aggregation layer: it combines the API groups that this server serves itself, built-in or custom, with
// those of other servers.
//
// Every group version has an APIService object. This package writes those of the server's own group versions, as Local. Users
// write APIServices that name a Service: requests for their group version are proxied to that Service, as the user that sent
// them. Discovery lists both kinds, in the order of their priorities.
//
// The controllers and the merging of discovery are those of k8s.io/kube-aggregator. This package replaces the GenericAPIServer that
// upstream has around them: the routing of requests, the proxy, and the list of groups.
package aggregation
