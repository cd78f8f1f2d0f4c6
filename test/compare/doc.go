// Command compare plays scripts of requests to sqube and to kube-apiserver and prints every difference between their
// answers: status, headers that matter, and bodies apart from what is generated.
//
//	go run ./test/compare                       # builds and starts both, kube-apiserver on etcd
//	go run ./test/compare -run lists            # one script, testdata/lists.http
//	go run ./test/compare -sqube postgres       # sqube on the other engine
//	go run ./test/compare -against KUBECONFIG   # a kube-apiserver that runs already
//	go run ./test/compare -v                    # prints all answers too
//
// It ends with 1 when answers differ in a field that differences.txt does not name, or when that names one that no longer differs.
//
// # Scripts
//
// A script is a text in the manner of .http files:
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
// "###" begins a request and gives its title. Below the request line are headers; "@name = field.path" keeps a field of
// the answer for later requests, which name it as {{name}}; "@body = protobuf" and "@body = cbor" send the JSON body in
// that encoding; "@until = 200" sends the request until that is the code of its answer. A body is JSON unless Content-Type
// says otherwise. {{namespace}} is made for the script, on each server, with what controllers would put into it. The bodies of
// watches are read to their end, so they need timeoutSeconds.
package main
