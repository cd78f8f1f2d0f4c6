// Package workload is what clients do to the servers while these fail: a few sorts of clients at once, each of which makes
// its choices from a seed and records what it asks and is told.
//
//   - Editors create, update, delete and get the same few ConfigMaps, with preconditions and without, and apply to them.
//   - Holders take Leases from each other, each update in the version that it has read.
//   - Listers list the newest state, any state, or one of the past, whole or in pages, each page from another server.
//   - Watchers follow with bookmarks or without, with the state first or from a revision on. They leave at random and go on
//     at another server with the last revision that they were told.
package workload
