// Package controlplane tests `sqube serve --control-plane`: one process is the control plane of a cluster. Nodes and kubelets
// are played; what they would do to Pods is done here.
package controlplane
