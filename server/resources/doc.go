// Package resources builds the REST storages of the API groups that kube-apiserver serves: the legacy core group, every
// group with a storage provider in k8s.io/kubernetes/pkg/registry, and apiregistration.k8s.io.
//
// The strategies, validation, printers and subresources are Kubernetes' own. This package decides which resources are served
// (--runtime-config), where their objects are stored (RESTOptions), and how Services get addresses and ports.
package resources
