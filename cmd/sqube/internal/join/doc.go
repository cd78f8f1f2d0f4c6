// Package join prepares a cluster for nodes that join with a bootstrap token, as `kubeadm init` does, so that `kubeadm join`
// and kubelets with a bootstrap kubeconfig work. Names of objects are kubeadm's.
package join
