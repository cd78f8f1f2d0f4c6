// Package ledger writes objects through failures of the server and records what the server has acknowledged, so that a test can
// check that nothing was lost, duplicated or reordered.
//
//   - A Writer makes changes and retries those whose response was lost, until their outcome is known.
//   - The Ledger has the history of every object: its acknowledged resourceVersions, in order.
//   - Follow watches a resource across restarts, each time from the last version received.
//
// Every update carries the version that it replaces, so a write that was acknowledged and then lost fails the next one.
package ledger
