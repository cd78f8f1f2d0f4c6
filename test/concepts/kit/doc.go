// Package kit is the framework of the tests in test/concepts. They test, statement by statement, what the documentation of the
// Kubernetes API promises: a package for each section, a promise for each statement, by requests from outside the process. What is
// stored is tested on every engine, the rest on SQLite.
//
//	go test ./test/concepts/lists -v                            # a section, with its statements
//	go test ./test/concepts/lists -run 'TestLists//continue'    # statements by a part of their names
//	go test ./test/concepts/lists -against KUBECONFIG           # of another server, such as kube-apiserver
//
// The last command checks the promises themselves: kube-apiserver must keep them too (`go run ./test/bench hold etcd`
// starts one and prints its kubeconfig). If the documentation and kube-apiserver differ, the promise is what kube-apiserver
// does, and a comment says so.
package kit
