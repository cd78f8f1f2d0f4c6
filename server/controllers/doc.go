// Package controllers runs, in the server's own process, those of kube-controller-manager's controllers without which the
// API itself does not do what it promises. They are upstream's, unchanged, over the loopback client. Where several servers
// share a database, one of them runs them, which a Lease decides: RunAsLeader.
//
// # What runs
//
//	namespace                        empties a namespace that is being deleted, then lets it go
//	garbage-collector                owner references: foreground, background and orphan deletion
//	serviceaccount                   ServiceAccount default in every namespace
//	serviceaccount-token             the content of token Secrets
//	legacy-serviceaccount-token-cleaner  token Secrets that no one has used for a year (KEP-2799)
//	root-ca-certificate-publisher    ConfigMap kube-root-ca.crt in every namespace
//	resourcequota                    status.hard and status.used of ResourceQuotas
//	clusterrole-aggregation          rules of admin, edit, view and other aggregated ClusterRoles
//	validatingadmissionpolicy-status type warnings in the status of ValidatingAdmissionPolicies
//	service-cidr                     readiness and deletion of ServiceCIDRs (KEP-1880)
//	storage-version-migrator         StorageVersionMigrations, where they are served, which they are not by default: the
//	                                 gate StorageVersionMigrator and --runtime-config=storagemigration.k8s.io/v1beta1=true
//	persistentvolumeclaim-protection, persistentvolume-protection, volumeattributesclass-protection
//	                                 finalizers that admission puts on these objects: without the controllers that take
//	                                 them away again, the objects could never be deleted
//
// # What does not, unless it is asked for
//
// Deployments, ReplicaSets, Jobs, Endpoints, the scheduler, autoscaling, the life of nodes and the signing of certificates
// are no part of an API server: they are policy, and they cost memory on clusters that have no use for them (much of what
// uses a Kubernetes API has no Pods). Package controlplane has them; those that are selected run with the ones above, on the
// same informers, by the same rules: Config.Others, Config.Scheduler. kube-controller-manager and kube-scheduler run against
// this server as against any, too.
//
// # Beside a kube-controller-manager
//
// It runs all of the controllers above, and two of one kind would do everything twice. So while it holds its Lease, those
// here are at rest, and they start again when it lets go of the Lease or stops renewing it. So is the scheduler while a
// kube-scheduler holds its own. A controller that is selected by its name runs here all the same: that is for a
// kube-controller-manager which was told to leave it out.
//
// # What it costs
//
// The garbage collector and the quota controller watch every resource. What they need of most objects is metadata, so
// they get informers of metadata, stripped to names, owners and finalizers, and shared by the two; upstream, which has
// informers of whole objects anyway, shares those. Whole objects are watched only where a controller reads them, with
// the server's shared informers, or narrowed by a field selector where those would hold every Secret or ConfigMap.
// Nothing polls: discovery is read again when a CustomResourceDefinition changes, and every few minutes in case.
package controllers
