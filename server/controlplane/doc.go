// Package controlplane runs the rest of a control plane in the API server's process: the controllers of kube-controller-manager that
// package controllers does not have, and kube-scheduler. Both are upstream's, unchanged, with upstream's flags and configuration
// files. They reach the server over the loopback client, share its informers, and run on one server per database at a time; package
// controllers takes care of that.
//
// # What differs from upstream's programs
//
// They have no port, no client configuration and no leader election of their own. If the Lease is lost they stop, not the process.
// Controllers act as their service accounts by default, as in a kubeadm cluster. Informers are not resynchronized every twelve hours or
// more. Some controllers are built when there is the first object that they have something to do with. Volumes are attached within a
// second, not within a tenth of one. In a bubble of testing/synctest, sqube's own controller signs certificates.
package controlplane
