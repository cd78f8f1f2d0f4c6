// Package robustness makes servers and their database fail at random while clients work, records the clients' requests and
// responses, and checks them against the promises of the API, like etcd's robustness tests.
//
//	plan ──► faults ──► servers, database
//	                       ▲
//	workload ──────────────┘ ──► history ──► check
//
// The seed alone decides which faults occur, when, and where, and what each client chooses. How these interleave depends on the
// machine, so a seed that failed once fails again soon, but not always at the first attempt. A failing run prints the seed and
// the command that replays it, and keeps the history, the log of the faults and the logs of the servers.
//
//	make robustness DURATION=30m     new seeds until the time is over or one fails
//	make robustness SEED=n           that seed once
//	go test ./test/robustness -run TestRobustness/postgres-3 -seed n -duration 10s
//	go test ./test/robustness -run TestHistory -history DIR     checks a kept history again
//
// The configurations are sqlite, one server on SQLite, and postgres-1 and postgres-3, one or three servers on a Postgres of
// their own. In sqlite-kills and postgres-kills, the server and Postgres are killed again and again, each time after clients got
// more writes acknowledged. -patroni adds patroni-haproxy and patroni-hosts, two servers on three nodes under Patroni, which they
// reach through HAProxy or by the addresses of all nodes. There, one after the other, the primary moves, is killed or cut off, or
// its standby is killed, and the test prints for how long no write was acknowledged. -old runs only postgres-skew: three servers
// on Postgres, of which one has the older sqube that -old names (make skew).
package robustness
