// Command bench loads Kubernetes API servers and measures what each operation costs them: CPU time per operation, latency,
// memory, idle CPU, start-up and the size of what they store.
//
//	go run ./test/bench                                   # sqube on SQLite and on Postgres
//	go run ./test/bench --peers etcd,kine-sqlite          # kube-apiserver on etcd and on kine in the same run
//	go run ./test/bench --peers etcd --rounds 5 >run.jsonl
//	go run ./test/bench plot <run.jsonl >ratios.svg       # draws the ratios of a recorded run; "table" prints its table again
//	go run ./test/bench size                              # what work costs in a collection of 100,000 objects with 1,000 watches,
//	                                                      # over what it costs in a hundredth of that
//	go run ./test/bench --peers etcd watches              # what watches cost: events to 100 of them, 10,000 idle ones on shared and
//	                                                      # on own connections, and changes that concern none of those
//	go run ./test/bench busy                              # how long writes wait while 10,000 watches of one object are told of its changes,
//	                                                      # and while the cache gets full: pass --sqube-flag --cache-size=32Mi
//	go run ./test/bench --updates 1000000 churn           # what many updates of few objects leave behind in sqube's databases,
//	                                                      # and what they cost
//	go run ./test/bench --peers etcd clients              # 50 to 1,000 clients at once that write and read, under 1 and 20 watches
//	go run ./test/bench scale                             # 1,000 simulated nodes, 30,000 pods of which some start all the time, and a
//	                                                      # tenth of that before; on Postgres a server is killed; fails if one of
//	                                                      # Kubernetes' objectives is missed, or if a node costs more among many
//	go run ./test/bench --peers etcd control-plane        # what a control plane takes that has 100 pods and nothing to do
//	go run ./test/bench --peers etcd definitions          # what 10, 100 and 1,000 CustomResourceDefinitions cost
//	go run ./test/bench --peers etcd,kine-sqlite wear     # how many bytes each write puts on the disk
//	go run ./test/bench history                           # what it costs to keep history, and to read it
//	go run ./test/bench --peers etcd large-objects        # memory for 10,000 custom resources of 100 KiB of which only metadata is read
//	go run ./test/bench transactions                      # 500 ConfigMaps, and the objects of a chart, in transactions and in as many requests
//	go run ./test/bench fleet                             # 10,000 clusters that sleep and 500 that are awake in one server: creating,
//	                                                      # memory, waking, forks, and a neighbour that floods
//	go run ./test/bench finished                          # 60,000 pods that have ended, in one namespace: reads, and ways to delete them
//	go run ./test/bench hold etcd [FLAG…]                 # starts one server, prints its kubeconfig and where its state is, waits for ^C
//
// It prints one JSON line per phase and, at the end, a table with the medians of the rounds. Comparable figures have their
// ratio to the peer's, or to the first server's if there is no peer: below 1, a server needs less. CPU per operation is the
// figure to compare: it is the servers' own user and system time, read from their CPU clocks, which excludes the load generator
// on the same machine, while wall time includes waiting for it. A datastore counts as part of its server: etcd, kine, and Postgres
// with all its processes, whose part is shown on a line of its own. So does its memory.
//
// The servers take turns: the first round of each, the second of each, and so on, so that a machine that gets slower or faster
// does so for all. Each turn starts its server with an empty store and stops it afterwards. So no server takes memory, caches
// or CPU time from another; each round covers a server's whole life, including the first read after a write and the memory of a
// fresh server; and rounds are independent of each other.
//
// What an event costs is the CPU time of the changes and their events, without that of as many changes that nobody watches.
//
// The column "floor" is the transport's limit: Go's own TLS server with HTTP/2, which answers the same requests with canned
// bytes of the same size, and sends its watchers canned events.
//
//	go run ./test/bench --sqube-flag --cache-size=64Mi size   # with other flags of sqube
package main
