// Package kit is what the tests in test/concepts are written with. They prove, statement by statement, what the documents of
// the Kubernetes API promise: a package for each of their sections, a promise for each statement, by requests from outside the
// process, on every engine.
//
//	go test ./test/concepts/lists -v                            # a section, with its statements
//	go test ./test/concepts/lists -run 'TestLists//continue'    # statements by a part of their names
//	go test ./test/concepts/lists -against KUBECONFIG           # of another server, such as kube-apiserver
//
// The last one is how a promise is checked itself: kube-apiserver v1.36 must keep it too (`go run ./test/bench hold etcd`
// starts one and prints its kubeconfig). Where the documents and kube-apiserver differ, the promise is what kube-apiserver
// does, and a comment says so.
package kit
