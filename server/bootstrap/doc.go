// Package bootstrap creates and maintains the objects that every cluster needs: the work of kube-apiserver's post-start hooks, done
// over the loopback client.
//
// # What runs
//
// Each part is a hook with kube-apiserver's name, so that /readyz?verbose looks the same. A hook first creates its objects, with
// retries; until then its check fails and the server is not ready. It may then maintain the objects until the server stops. All
// hooks start at once; a hook that needs another one waits for it.
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
//	start-legacy-token-tracking-controller               when the tracking of legacy tokens started (KEP-2799)
//
// The last four never delay readiness, like upstream. Not included: ConfigMap kube-public/cluster-info, which is kubeadm's, and the
// migration of roles from clusters older than Kubernetes 1.9 and 1.14, which can't be in this store.
//
// # How it differs from upstream
//
// Upstream's hooks for RBAC and priority classes wait a second before they start, and write one object after another. This server
// must be ready within a second of its first start, and its store commits concurrent writes in one transaction. So these hooks
// call the same reconcilers for many objects at a time, after listing what exists: a restart writes nothing.
//
// The server's own Lease lasts an hour; it is renewed every ten minutes, not every ten seconds, to spare flash memory.
package bootstrap
