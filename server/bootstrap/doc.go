// Package bootstrap makes a new cluster whole and keeps it so: what kube-apiserver's post-start hooks do, done over the
// loopback client.
//
// # What runs
//
// Each part is a hook with the name kube-apiserver gives it, so that /readyz?verbose reads the same. A hook first brings
// about what it is for, as often as it takes; until then its check fails and the server is not ready. Then it may keep
// that state up until the server ends. All hooks start at once; one that needs another waits for it.
//
//	start-system-namespaces-controller                   default, kube-system, kube-public, kube-node-lease
//	rbac/bootstrap-roles                                 default roles and bindings of RBAC
//	scheduling/bootstrap-system-priority-classes         system-cluster-critical, system-node-critical
//	priority-and-fairness-config-producer                flow schemas and priority levels (KEP-1040)
//	start-kubernetes-service-cidr-controller             the default ServiceCIDR (KEP-1880)
//	start-service-ip-repair-controllers                  cluster IPs and node ports agree with the Services
//	bootstrap-controller                                 Service, Endpoints and EndpointSlice default/kubernetes
//	start-cluster-authentication-info-controller         ConfigMap kube-system/extension-apiserver-authentication
//	start-kube-apiserver-identity-lease-controller       this server's Lease in kube-system (KEP-1965)
//	start-kube-apiserver-identity-lease-garbage-collector  leases of servers that are gone
//	start-legacy-token-tracking-controller               since when legacy tokens are tracked (KEP-2799)
//
// The last four never hold readiness back, upstream as here. Not made: ConfigMap kube-public/cluster-info, which is
// kubeadm's; the move of roles from clusters older than Kubernetes 1.9 and 1.14, which cannot be in this store.
//
// # How it differs from upstream
//
// Upstream's hooks for RBAC and priority classes wait a second before they do anything, and write one object after
// another. A server here must be ready within a second of its first start, and its store commits what arrives together
// as one transaction. So these hooks call the same reconcilers object by object, many at a time, after one list that
// tells what is there already: a restart writes nothing.
//
// The server's own Lease lasts an hour; it is renewed every ten minutes, not every ten seconds, to spare flash memory.
package bootstrap
