// Package controlplane tests `sqube serve --control-plane`: one process is the control plane of a cluster. Nodes and kubelets
// are simulated; the tests do what they would do to Pods.
package controlplane
