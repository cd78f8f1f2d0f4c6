// Package controlplane has what a cluster runs beside its API server, to be run in the same process: the controllers of
// kube-controller-manager that package controllers does not have, and kube-scheduler. Both are upstream's, unchanged, with
// upstream's flags and configuration files. They reach the server over the loopback, share its informers, and run on one
// server of those on a database at a time; package controllers sees to all of that.
//
// # What differs from upstream's programs
//
// There is no port, no client configuration and no leader election of their own. Losing the Lease ends them and not the
// process. Controllers act as the server itself, or, with --use-service-account-credentials, each as its service account,
// which it impersonates. Informers are not resynchronized every twelve hours or more.
package controlplane
