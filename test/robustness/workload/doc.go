// Package workload is what clients do while the servers fail: several sorts of clients at once, each of which makes its choices
// from a seed and records its requests and responses.
//
//   - Editors create, update, delete and get the same few ConfigMaps, with preconditions and without, and apply to them.
//   - Holders take Leases and custom resources from each other, with the version that they have read as the precondition.
//   - Movers move amounts between accounts, in transactions with the versions that they have read as preconditions. If they get no answer,
//     they ask what has become of the transaction.
//   - Listers list the newest state, any state, or a past one, whole or in pages, each page from another server.
//   - Watchers watch with bookmarks or without, with initial events or from a revision. They leave at random and continue on
//     another server with the last revision that they received.
//   - Informers of client-go stay with one server.
package workload
