// Package robustness lets servers and their database fail at random while clients work, records what the clients asked and
// were told, and holds that to what the API promises; in the manner of etcd's robustness tests.
//
//	plan ──► faults ──► servers, database
//	                       ▲
//	workload ──────────────┘ ──► history ──► check
//
// The seed alone decides which faults come, when, and on what, and what each client chooses. How these meet is up to the
// machine, so a seed that failed once finds the same again soon, but not always at once. A run that fails says the seed
// and the command that replays it, and keeps the history, the log of the faults and those of the servers.
//
//	make robustness DURATION=30m     fresh seeds until the time is over or one fails
//	make robustness SEED=n           that seed once
//	go test ./test/robustness -run TestRobustness/postgres-3 -seed n -duration 10s
//	go test ./test/robustness -run TestHistory -history DIR     checks a history that was kept once more
//
// The configurations are sqlite, one server on SQLite, and postgres-1 and postgres-3, so many servers on one Postgres that
// is theirs alone. With -patroni there are also patroni-haproxy and patroni-hosts, two servers on three nodes under Patroni,
// through HAProxy and with the addresses of all nodes. There the primary moves, is killed or cut off, or its standby is killed,
// one after the other, and what is printed is for how long no write was acknowledged.
package robustness
