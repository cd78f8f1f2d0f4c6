// Command bench loads Kubernetes API servers and measures what each operation costs them: CPU time per operation, latency,
// memory, idle CPU, start-up and the size of what they store.
//
//	go run ./test/bench                                   # sqube on SQLite and on Postgres
//	go run ./test/bench --peers etcd,kine-sqlite          # kube-apiserver on etcd and on kine in the same run
//	go run ./test/bench --kubeconfig FILE [--pid N,N]     # whatever server the file names, in the same run
//	go run ./test/bench --updates 1000000 churn           # what many updates of few objects leave behind in sqube's databases,
//	                                                      # and what they cost; "churn size" and "churn costs" are one of both
//	go run ./test/bench hold etcd [FLAG…]                 # starts one server, prints its kubeconfig and where its state is, waits for ^C
//
// It prints one JSON line per phase and, at the end, a table in which every figure is set in relation to the first
// server's. CPU per operation is the figure to compare: it is the servers' own user and system time, read from
// /proc, so that the load generator beside them does not count, while wall time does include waiting for it. A datastore
// shim (etcd, kine) counts as part of its server; Postgres is reported apart.
//
// The column "floor" is the transport's limit: Go's own TLS server with HTTP/2, which answers the same requests with ready
// bytes of the same size.
package main
