// Package fakenode plays nodes: it registers Nodes, renews their Leases and reports what a kubelet reports of the Pods bound to
// them, without running anything.
package fakenode
