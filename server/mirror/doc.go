// Package mirror follows another cluster into a store, through that cluster's API.
//
//	watch of a resource ──┐
//	watch of a resource ──┼──► events ──► writer ──► store
//	watch of a resource ──┘                 ▲
//	              audit log, audit webhook ─┘ who did it
//
// Each resource is listed once, and then watched. Versions are written in the order in which they come, each with the resourceVersion that it
// has in the cluster (sqlstore.MirroredID). So the log itself says how far each watch has come, and after a restart it goes on from there:
// nothing is written twice, and nothing is missing that the cluster still tells.
//
// What was not seen as it happened is in history as a [Gap]. If a watch can't go on, since the cluster has forgotten what happened since,
// the resource is listed again, and the difference is written after the gap.
package mirror
