// Package patroni runs a highly available Postgres from Debian's packages: three nodes, each with Patroni and the Postgres that
// it manages, and etcd, which stores the leader. Replication is synchronous (synchronous_mode).
//
//	clients ──► HAProxy, or a DSN that names all nodes
//	               │
//	            proxies ──► Postgres ◄── Patroni ──► proxy ──► etcd
//
// All traffic to a node, and from it to etcd, goes through proxies of the tests, which can cut the node off. Everything listens
// on 127.0.0.1 and is stopped when the test ends.
package patroni
