// Package fakenode simulates nodes: it registers Nodes, renews their Leases and reports what a kubelet reports about the Pods
// bound to them, without running anything.
package fakenode
