// Package controllers runs, in the server's process, the controllers of kube-controller-manager that the API itself needs. They are
// upstream's, unchanged, over the loopback client, each as its service account. Only the server's shared informers, discovery and the
// Lease below are read and written as the server itself. If several servers share a database, the one that holds a Lease runs them:
// RunAsLeader.
//
// # What runs
//
//	namespace                        empties a namespace that is being deleted, then removes its finalizer
//	garbage-collector                owner references: foreground, background and orphan deletion
//	serviceaccount                   ServiceAccount default in every namespace
//	serviceaccount-token             the content of token Secrets
//	legacy-serviceaccount-token-cleaner  token Secrets that have not been used for a year (KEP-2799)
//	root-ca-certificate-publisher    ConfigMap kube-root-ca.crt in every namespace
//	resourcequota                    status.hard and status.used of ResourceQuotas
//	clusterrole-aggregation          rules of admin, edit, view and other aggregated ClusterRoles
//	validatingadmissionpolicy-status type warnings in the status of ValidatingAdmissionPolicies
//	service-cidr                     readiness and deletion of ServiceCIDRs (KEP-1880)
//	storage-version-migrator         StorageVersionMigrations: rewrites objects in the current storage version (KEP-4192)
//	persistentvolumeclaim-protection, persistentvolume-protection, volumeattributesclass-protection
//	                                 finalizers that admission adds to these objects, which could otherwise never be
//	                                 deleted
//
// # What does not run by default
//
// Deployments, ReplicaSets, Jobs, Endpoints, the scheduler, autoscaling, the life cycle of nodes and the signing of certificates
// are not part of an API server: they are policy, and they cost memory on clusters that do not need them (many users of the
// Kubernetes API have no Pods). Package controlplane has them. If selected, they run with those above, on the same informers and
// by the same rules: Config.Others, Config.Scheduler. kube-controller-manager and kube-scheduler also run against this server
// as against any other.
//
// # Beside a kube-controller-manager
//
// A kube-controller-manager runs all of the controllers above, and two instances would do everything twice. So while it holds its
// Lease, the controllers here are stopped. They start again when it releases the Lease or stops renewing it. The same holds for the
// scheduler and kube-scheduler. A controller that is selected by name always runs here, for use with a kube-controller-manager that
// is configured without it.
//
// # What it costs
//
// The garbage collector and the quota controller watch every resource. They mostly need metadata, so the two share informers of
// metadata, reduced to names, owners and finalizers; upstream, which has informers of whole objects anyway, shares those. Whole
// objects are watched only if a controller reads them: by the server's shared informers, or with a field selector if these would
// hold every Secret or ConfigMap. Nothing polls: discovery is read again when a CustomResourceDefinition changes, and every few
// minutes to be safe.
//
// A controller that has nothing to do without objects of some resource is built when there is one; the garbage collector and the namespace
// controller when a client first writes to a new database. Informers are fed from the store: package informer.
package controllers
