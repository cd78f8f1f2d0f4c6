// Package accuracy measures how right sqube try is. Each scenario is set up in a running cluster; a change is tried on a copy of it, and then
// made in the cluster. Both must come to the same end: every object of the scenario, with its status, and every new Event, without what is
// generated or measured. What differs on purpose is in differences.txt, with the reason.
//
// With -upstream, the cluster is etcd, kube-apiserver, kube-controller-manager and kube-scheduler (make accuracy); otherwise, sqube serve
// --control-plane, and only scenarios that end in a few seconds are played. The nodes are simulated in either case.
package accuracy
