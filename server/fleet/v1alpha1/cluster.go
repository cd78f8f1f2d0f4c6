package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cluster is a Kubernetes API with a database of its own. It answers under the path /clusters/NAMESPACE/NAME of the server that hosts it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=cl,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.status.claimedBy`
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Objects,type=integer,JSONPath=`.status.objects`
// +kubebuilder:printcolumn:name=Size,type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name=Last-Request,type=date,JSONPath=`.status.lastRequest`
// +kubebuilder:printcolumn:name=Expires,type=string,JSONPath=`.status.expires`,priority=1
// +kubebuilder:printcolumn:name=From,type=string,JSONPath=`.spec.from.cluster.name`,priority=1
// +kubebuilder:printcolumn:name=URL,type=string,JSONPath=`.status.url`,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.message`
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	// +kubebuilder:validation:XValidation:rule="has(self.from) == has(oldSelf.from) && (!has(self.from) || self.from == oldSelf.from)",message="what a cluster began with can't be changed"
	Spec ClusterSpec `json:"spec,omitempty"`
	// +optional
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterList is a list of clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cluster `json:"items"`
}

// ClusterSpec is what a cluster shall be.
type ClusterSpec struct {
	// From is what the cluster begins with. Without it, the cluster is new.
	//
	// +optional
	From *Origin `json:"from,omitempty"`
	// Outbound lists the addresses that a copy may connect to: HOST, HOST:PORT, or * for all. A cluster with spec.from connects to no node,
	// webhook or aggregated API server at other addresses. It is unused without spec.from.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Outbound []string `json:"outbound,omitempty"`
	// Sleep is when the cluster sleeps: it then takes no memory and no processor, and the next request wakes it.
	//
	// +optional
	// +kubebuilder:default={}
	Sleep Sleep `json:"sleep,omitempty"`
	// Controllers are those that run beside the API: API for those that the API itself needs (garbage collection, namespaces, quota, service
	// accounts), All for those of kube-controller-manager too, None for none.
	//
	// +optional
	// +kubebuilder:default=API
	// +kubebuilder:validation:Enum=API;All;None
	Controllers Controllers `json:"controllers,omitempty"`
	// Scheduler runs kube-scheduler in the cluster.
	//
	// +optional
	Scheduler bool `json:"scheduler,omitempty"`
	// SimulatedNodes is how many nodes are simulated, whose Pods seem to run. They need controllers All.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SimulatedNodes int32 `json:"simulatedNodes,omitempty"`
	// Limits bound what the cluster may use.
	//
	// +optional
	Limits Limits `json:"limits,omitempty"`
	// History is how long versions of objects are kept for undo and for changes. Default: as on the host.
	//
	// +optional
	History *metav1.Duration `json:"history,omitempty"`
	// Retention is how long watches can resume from an older resourceVersion. Default: as on the host.
	//
	// +optional
	Retention *metav1.Duration `json:"retention,omitempty"`
	// Administrators are users, groups and service accounts of the host that may do everything in the cluster.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Administrators []rbacv1.Subject `json:"administrators,omitempty"`
	// Anonymous lets requests without credentials wake the cluster, whose RBAC then decides what they may do: by default, read its health and its
	// version. A verifier of service accounts' tokens and kubeadm join with --discovery-token need it. Without it, such requests get 401, as if
	// the cluster did not exist.
	//
	// +optional
	Anonymous bool `json:"anonymous,omitempty"`
	// TTL is how long the cluster lives. Then it is deleted, as by a user.
	//
	// +optional
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// KeepDeleted is for how long the database is kept after the cluster was deleted, so that undoing the deletion brings it back.
	//
	// +optional
	// +kubebuilder:default="24h"
	KeepDeleted *metav1.Duration `json:"keepDeleted,omitempty"`
}

// Origin is what a cluster begins with: a cluster, or a backup.
//
// +kubebuilder:validation:XValidation:rule="has(self.cluster) != has(self.backup)",message="name either a cluster or a backup"
type Origin struct {
	// Cluster is forked: the new cluster has its objects and history, but keys of its own.
	//
	// +optional
	Cluster *ForkedCluster `json:"cluster,omitempty"`
	// Backup is a file or a folder of sqube backup on the host, or s3://BUCKET/PREFIX. Only those who may use the verb "restore" of clusters may name one.
	//
	// +optional
	Backup string `json:"backup,omitempty"`
	// Time selects the state at a time. Default: now.
	//
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// ResourceVersion selects the state at a resourceVersion.
	//
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ForkedCluster names a cluster. Its creator needs the verb "fork" of the cluster.
type ForkedCluster struct {
	// Namespace is that of the cluster. Default: the namespace of the new one.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Controllers says which controllers run.
type Controllers string

// The values of Controllers.
const (
	ControllersAPI  Controllers = "API"
	ControllersAll  Controllers = "All"
	ControllersNone Controllers = "None"
)

// Sleep is when a cluster sleeps.
type Sleep struct {
	// After is for how long nobody has requested anything when the cluster falls asleep. Open watches do not count as requests. 0 for never.
	//
	// +optional
	// +kubebuilder:default="5m"
	After *metav1.Duration `json:"after,omitempty"`
}

// Limits bound what a cluster may use. 0 means no limit of its own.
type Limits struct {
	// Objects is how many objects the cluster may have. Further ones get 507.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Objects int64 `json:"objects,omitempty"`
	// Storage is how large the database may become. Further writes get 507, deletions go on.
	//
	// +optional
	Storage *resource.Quantity `json:"storage,omitempty"`
	// RequestsPerSecond is how many requests clients may send in a second. Further ones get 429.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	RequestsPerSecond int32 `json:"requestsPerSecond,omitempty"`
	// Watches is how many watches may be open at once. Further ones get 429.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Watches int32 `json:"watches,omitempty"`
	// Memory bounds the cache of objects and the events that watches have not sent. Reads of what does not fit use the database.
	//
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// Phase is what a cluster is doing.
type Phase string

// The phases.
const (
	PhaseCreating Phase = "Creating"
	PhaseAsleep   Phase = "Asleep"
	PhaseWaking   Phase = "Waking"
	PhaseAwake    Phase = "Awake"
	PhaseFailed   Phase = "Failed"
	PhaseDeleting Phase = "Deleting"
)

// What the server itself sets in the metadata of clusters. Others can't change it.
const (
	// DatabaseAnnotation has the id of the database, from the creation on.
	DatabaseAnnotation = "fleet.sqube.io/database"
	// Finalizer keeps a Cluster until its server has stopped and its database is among the deleted ones.
	Finalizer = "fleet.sqube.io/database"
	// PoolLabel has the name of the pool that made the cluster.
	PoolLabel = "fleet.sqube.io/pool"
	// TemplateAnnotation has a hash of the template from which the pool made the cluster.
	TemplateAnnotation = "fleet.sqube.io/template"
)

// Conditions of a cluster.
const (
	// ConditionReady is true if requests are answered, awake or asleep.
	ConditionReady = "Ready"
	// ConditionExpiring is true when the end of the cluster's TTL is near.
	ConditionExpiring = "Expiring"
)

// ClusterStatus is what a cluster is.
type ClusterStatus struct {
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Message is what is wrong, in one sentence. It is empty if nothing is.
	//
	// +optional
	Message string `json:"message,omitempty"`
	// URL is where clients reach the cluster.
	//
	// +optional
	URL string `json:"url,omitempty"`
	// CABundle has the certificates that verify the server at URL, in PEM.
	//
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`
	// Database is the id of the cluster's database.
	//
	// +optional
	Database string `json:"database,omitempty"`
	// ClientKey and AccountKey are the public keys that verify the client certificates and the service accounts' tokens that the cluster itself has
	// issued, so that nobody else wakes it. They are known after it was awake for the first time.
	//
	// +optional
	ClientKey []byte `json:"clientKey,omitempty"`
	// +optional
	AccountKey []byte `json:"accountKey,omitempty"`
	// ForkedAt is the resourceVersion at which the cluster was forked or restored.
	//
	// +optional
	ForkedAt string `json:"forkedAt,omitempty"`
	// Server is the server that has the cluster awake.
	//
	// +optional
	Server string `json:"server,omitempty"`
	// Objects is how many objects the cluster had when that was last looked at.
	//
	// +optional
	Objects int64 `json:"objects,omitempty"`
	// Bytes is the size of the database.
	//
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// Size is Bytes for people.
	//
	// +optional
	Size string `json:"size,omitempty"`
	// ResourceVersion is the newest one when the cluster fell asleep.
	//
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// LastRequest is when a client last requested something. It is written every few minutes, and when the cluster falls asleep.
	//
	// +optional
	LastRequest *metav1.Time `json:"lastRequest,omitempty"`
	// Wakes is how often the cluster woke up.
	//
	// +optional
	Wakes int64 `json:"wakes,omitempty"`
	// LastWakeMilliseconds is how long the last wake took until the first request could be answered.
	//
	// +optional
	LastWakeMilliseconds int64 `json:"lastWakeMilliseconds,omitempty"`
	// NextWake is when the cluster wakes up without a request, for what time itself does: a CronJob, an end of a TTL, an expiry.
	//
	// +optional
	NextWake *metav1.Time `json:"nextWake,omitempty"`
	// Expires is when the cluster is deleted because of spec.ttl.
	//
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
	// ClaimedBy is the user who claimed the cluster from a pool.
	//
	// +optional
	ClaimedBy string `json:"claimedBy,omitempty"`
	// ClaimedAt is when the cluster was claimed.
	//
	// +optional
	ClaimedAt *metav1.Time `json:"claimedAt,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
