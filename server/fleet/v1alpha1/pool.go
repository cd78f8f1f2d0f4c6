package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterPool keeps a number of clusters of one template ready to be claimed. A claim takes one out of the pool, which is then replaced.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=clp,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas
// +kubebuilder:printcolumn:name=Desired,type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name=Ready,type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name=Claimed,type=integer,JSONPath=`.status.claimed`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.message`
type ClusterPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterPoolSpec `json:"spec"`
	// +optional
	Status ClusterPoolStatus `json:"status,omitempty"`
}

// ClusterPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type ClusterPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterPool `json:"items"`
}

// ClusterPoolSpec is what a pool shall be.
type ClusterPoolSpec struct {
	// Replicas is how many clusters wait to be claimed.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas int32 `json:"replicas"`
	// ClaimTTL is how long a claimed cluster lives, unless the claim asks for less.
	//
	// +optional
	// +kubebuilder:default="1h"
	ClaimTTL *metav1.Duration `json:"claimTTL,omitempty"`
	// Template is what the clusters are like.
	Template ClusterTemplate `json:"template"`
}

// ClusterTemplate describes the clusters of a pool.
type ClusterTemplate struct {
	// Labels of the clusters.
	//
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the clusters.
	//
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// +optional
	Spec ClusterSpec `json:"spec,omitempty"`
}

// ClusterPoolStatus is what a pool is.
type ClusterPoolStatus struct {
	// Replicas is how many clusters wait to be claimed, ready or not.
	//
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// Ready is how many of them can be claimed now.
	//
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// Claimed is how many clusters of the pool are claimed.
	//
	// +optional
	Claimed int32 `json:"claimed,omitempty"`
	// Message is what is wrong, in one sentence. It is empty if nothing is.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// Credentials is the answer to a POST of the subresources kubeconfig of a Cluster and claim of a ClusterPool.
//
// +kubebuilder:object:root=false
// +kubebuilder:skip
type Credentials struct {
	metav1.TypeMeta `json:",inline"`

	Spec   CredentialsSpec   `json:"spec,omitempty"`
	Status CredentialsStatus `json:"status,omitempty"`
}

// Lifetime is for how long the credentials are valid, 0 for the default.
func (c *Credentials) Lifetime() time.Duration {
	return time.Duration(c.Spec.ExpirationSeconds) * time.Second
}

// CredentialsSpec is what is asked for.
type CredentialsSpec struct {
	// User and Groups are the user whom the cluster sees. By default that is the caller: those who may use the verb "administer" of the cluster are
	// in the group system:masters of the cluster, others are who they are on the host, with the rights that the cluster's RBAC gives them. Only
	// those who may administer the cluster can name another user or group. The credentials end before their time when their holder loses the rights
	// with which they were requested.
	User   string   `json:"user,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// ExpirationSeconds is for how long the credentials are valid, at most a day. Default: an hour.
	ExpirationSeconds int64 `json:"expirationSeconds,omitempty"`
	// TTL is how long a claimed cluster lives.
	TTL *metav1.Duration `json:"ttl,omitempty"`
}

// CredentialsStatus is what is given.
type CredentialsStatus struct {
	// Namespace and Cluster name the cluster.
	Namespace string `json:"namespace,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
	URL       string `json:"url,omitempty"`
	// Token is the bearer token.
	Token string `json:"token,omitempty"`
	// Kubeconfig is a kubeconfig with the token.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Expires is when the credentials end.
	Expires metav1.Time `json:"expires,omitempty"`
}
