// Package ledger writes objects through failures of the server and remembers what the server has acknowledged, so that a
// test can tell whether anything of it was lost, came twice or came out of order.
//
//   - A Writer makes changes and repeats the ones whose answer was lost, until it knows what became of them.
//   - The Ledger has the history of every object: the resourceVersions that were acknowledged, in order.
//   - A Follower watches a resource across restarts, each time from the last version that it has seen.
//
// Every update carries the version that it replaces, so that a write which the server has acknowledged and then lost fails
// the next one.
package ledger
