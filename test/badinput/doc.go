// Package badinput tests that invalid input of every kind gets the same response as from kube-apiserver, and never a 500.
//
// The expected responses in testdata/kube-apiserver.json were recorded from a real kube-apiserver:
//
//	go run ./test/bench hold etcd                                        # prints the path of a kubeconfig
//	go test ./test/badinput -run Record -record-from KUBECONFIG
package badinput
