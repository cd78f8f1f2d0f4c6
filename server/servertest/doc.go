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
