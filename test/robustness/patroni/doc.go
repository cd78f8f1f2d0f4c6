// Package patroni runs Postgres as highly available set-ups have it, from Debian's packages: three nodes, each with Patroni
// and the Postgres that it manages, and etcd, which knows who leads. Replication is synchronous (synchronous_mode).
//
//	clients ──► HAProxy, or a DSN that names all nodes
//	               │
//	            proxies ──► Postgres ◄── Patroni ──► proxy ──► etcd
//
// Whatever reaches a node, or leaves it for etcd, goes through proxies of the tests, which can cut the node off. All of it
// listens on 127.0.0.1 and ends with the test.
package patroni
