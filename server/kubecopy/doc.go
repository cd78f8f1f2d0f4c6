// Package kubecopy reads a cluster through its API, as a user with a kubeconfig, to make a database of sqube from it.
//
//	discovery ──► CustomResourceDefinitions ──► each resource, page by page, all at one resourceVersion ──► rows
//
// Any conformant Kubernetes from 1.25 on can be read. Lists with resourceVersionMatch=Exact return the state at a resourceVersion, and
// resources that share an etcd share its revisions, so all of them are read as of one moment. A resource that can't be read at it is
// read as it is, and named.
package kubecopy
