// Command compare sends scripts of requests to sqube and to kube-apiserver and prints every difference between their responses:
// status, relevant headers, and bodies without generated values.
//
//	go run ./test/compare                       # builds and starts both, kube-apiserver on etcd
//	go run ./test/compare -run lists            # one script, testdata/lists.http
//	go run ./test/compare -sqube postgres       # sqube on the other engine
//	go run ./test/compare -against KUBECONFIG   # a kube-apiserver that runs already
//	go run ./test/compare -v                    # prints all responses too
//
// It exits with 1 if responses differ in a field that differences.txt does not name, or if that names one that no longer
// differs.
//
// # Scripts
//
// A script is similar to a .http file:
//
//	# What the script is about.
//	### create with a fixed name
//	POST /api/v1/namespaces/{{namespace}}/configmaps
//	@version = metadata.resourceVersion
//
//	{"metadata":{"name":"a"}}
//
//	### an object that is as old as that
//	PUT /api/v1/namespaces/{{namespace}}/configmaps/a
//	Accept: application/yaml
//
//	{"metadata":{"name":"a","resourceVersion":"{{version}}"}}
//
// "###" begins a request and gives its title. Below the request line are headers; "@name = field.path" captures a field of the
// response for later requests, which refer to it as {{name}}; "@body = protobuf" and "@body = cbor" send the JSON body in that
// encoding; "@until = 200" repeats the request until it returns that status; "@for name = a | b" sends the request once with each
// value of {{name}}, which its title contains too. A body is JSON unless Content-Type says otherwise.
// {{namespace}} is created for the script, on each server, with what controllers would put into it. The bodies of watches are
// read to their end, so they need timeoutSeconds.
package main
