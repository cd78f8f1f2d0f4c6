// Package servertest runs API servers inside Go tests. Each has its own database and keys, in a temporary folder that is removed with it,
// listens on a free port of 127.0.0.1, and has an administrator.
//
//	func TestController(t *testing.T) {
//		s := servertest.Run(t, servertest.Options{CRDs: []string{"config/crd"}})
//		client := kubernetes.NewForConfigOrDie(s.Config)
//		…
//	}
//
// A server can start on a copy of a real cluster, from a backup, to try an upgrade on it:
//
//	s := servertest.Run(t, servertest.Options{From: "testdata/backup.db", CRDs: []string{"config/crd"}})
//
// A running server can be forked, so that many tests begin with what one has made, each with a server of its own:
//
//	s := base.Fork(t, servertest.Options{})
//
// # Virtual time
//
// With Options.Virtual, a server runs in a bubble of testing/synctest. The bubble's time is the server's: that of creation timestamps, Leases,
// tokens, certificates, back-offs, watches and controllers. When nobody has anything left to do, it jumps.
//
//	func TestNight(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			s := servertest.Run(t, servertest.Options{Virtual: true, ControlPlane: controlplane.All})
//			s.Nodes(t, simnodes.Options{Count: 3})
//			…
//			time.Sleep(12 * time.Hour)
//		})
//	}
//
// Time begins in 2026, or with Options.From where the copy ends. Connections are in memory: clients of Server.Config and Server.User reach the
// server, and the server reaches what listens with Server.Listen, such as webhooks and aggregated API servers. Several bubbles may run at once.
// package test/virtual has examples.
//
// What happens often holds up the clock: each wake-up of a goroutine takes about a microsecond, and a request a fraction of a
// millisecond or more. An idle server takes about 0.2 s for a day and the control plane 0.5 s, mostly for client-go's queues, which wake up every ten
// seconds. A first node adds 1 s, since upstream's controller of nodes looks ten times a second, and each node some seconds for the 2,160
// renewals of its Lease. So:
//
//   - what a real server repeats in case something has changed outside happens once in 30 days;
//   - the server's own watches last, without bookmarks; informers of the test watch again every five to ten minutes, as always;
//   - nodes renew their Leases every 40 s if a controller looks at that, which it does every 20 s, otherwise daily. It can have more patience:
//     controlplane.With("--node-monitor-grace-period=12h");
//   - controllers can be selected: controlplane.With("--controllers=serviceaccount-controller,cronjob-controller,job-controller").
//
// Not in a bubble: Postgres; files that are followed, such as those of audit policies and certificates; other processes, so also
// Server.Kubeconfig; priority and fairness, and the limits of requests in flight, unless Options.Configure sets them; the metrics of the
// scheduler and of object counts. A goroutine of the test that waits for a socket, a file or another process stops the clock, as everywhere in a
// bubble.
//
// # Races
//
// Explore runs a test under seeds that decide which delays and faults a controller meets, to find its races. Each seed has its own bubble:
//
//	servertest.Explore(t, servertest.Exploration{Seeds: 100}, func(t *testing.T, s *servertest.Server) {
//		startController(t, s.Unsteady(s.Config))
//		client := kubernetes.NewForConfigOrDie(s.Config) // meets no faults
//		… // create and change objects
//		time.Sleep(2 * time.Minute) // the faults are over
//		… // check what the controller has made of them
//	})
//
// # Many servers
//
// Many servers may run in one process at once, each with its own objects, users and options. Some state is global
// in Kubernetes' libraries and shared by the process:
//
//   - feature gates: see Options.FeatureGates;
//   - metrics: every server serves those of all servers at /metrics;
//   - the log: slog's default logger, and klog, which is discarded without Options.Logs;
//   - whether privileged Pods are allowed, and the bytes per second of connections into Pods: those of the first server;
//   - the limit on what a JSON patch copies: that of the server that was started last.
//
// If a client disconnects during a request, net/http may keep the server in memory for 90 seconds.
package servertest
