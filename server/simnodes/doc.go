// Package simnodes simulates nodes for tests, without another program. Pods bound to them, by a scheduler or by their spec.nodeName, get what a
// kubelet would report: phases, conditions, container statuses and addresses, and logs. Nothing runs; scripts say what containers do and when,
// so Jobs complete, rollouts finish or fail, and containers crash. Time is that of package time: in a bubble of testing/synctest, a month takes
// seconds.
//
//	nodes := s.Nodes(t, simnodes.Options{Count: 3, Scripts: []simnodes.Script{
//		// The first two Pods of the Job fail after an hour.
//		{Labels: "job-name=import", First: 2, Runs: []simnodes.Run{{simnodes.Wait(time.Hour), simnodes.Exit(1)}}},
//		// The database is pulled for 20 s, is ready after another 5 s, and needs 10 s to stop.
//		{Labels: "app=db", Container: "postgres",
//			Runs: []simnodes.Run{{simnodes.Wait(20 * time.Second), simnodes.Start(), simnodes.Wait(5 * time.Second), simnodes.Ready()}},
//			Stop: simnodes.Run{simnodes.Wait(10 * time.Second), simnodes.Exit(0)}},
//		// Version 2 crashes, and is restarted with a kubelet's back-off.
//		{Match: func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == "web:2" },
//			Runs: []simnodes.Run{{simnodes.Log("no such table"), simnodes.Exit(1)}}},
//	}})
//	…
//	nodes.Play("default", "db-0", "postgres", simnodes.Unready()) // now
//	nodes.Silence("node-0")                                       // until nodes.Return
//
// The nodes renew their Leases and report their status like kubelets. They do init containers in order, sidecars, restartPolicy, the back-off
// between restarts, readiness gates, terminationGracePeriodSeconds and activeDeadlineSeconds. They don't run probes or ephemeral containers, create Events, mount
// volumes, limit what Pods use, or refuse Pods that don't fit. Logs are served at a port of 127.0.0.1 that API servers connect to, without
// verifying who they are; exec, attach and port-forward get 501.
//
// # Copies of real clusters
//
// With Options.Keep, nodes and Pods that exist go on as they were, and nothing is written about those at rest. What is on the way goes on:
// containers that have not been ready for less than five minutes get ready, and those that end by themselves succeed after a minute. New Pods take
// a plausible time: two seconds to start, the initial delays of their probes, five seconds for a task, the sleep of a preStop hook. A container
// fails like the others that a controller has made from the same template if none of these is well, and an image can't be pulled that no Pod of the
// copy could pull. Containers wait for Secrets and ConfigMaps that are missing, with an Event, unless the copy lacks those that running Pods
// use. Scripts and annotations come before all that.
//
// Several sets of nodes may be in one cluster, if their names differ.
package simnodes
