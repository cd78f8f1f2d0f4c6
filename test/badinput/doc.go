// Package badinput tests that bad input of every sort gets the answer that kube-apiserver gives, and never a 500.
//
// The answers to compare with are in testdata/kube-apiserver.json, recorded from a real one:
//
//	go run ./test/bench hold etcd                                        # prints the path of a kubeconfig
//	go test ./test/badinput -run Record -record-from KUBECONFIG
package badinput
