// Package aggregation is the aggregation layer: it makes one API of the groups that this server serves itself, built in or
// custom, and those that other servers serve for it.
//
// There is an APIService object for every group version. Those of the server's own are written here and say Local; one
// that names a Service, which someone else writes, makes requests for its group version be passed on to that Service, as
// the user that sent them. Both kinds together are what discovery lists, in the order of their priorities.
//
// Controllers and the merging of discovery are those of k8s.io/kube-aggregator. What is written here stands where upstream
// has a GenericAPIServer around them: which request goes where, the proxy, and the list of groups.
package aggregation
