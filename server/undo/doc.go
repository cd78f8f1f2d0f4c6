// Package undo brings back what was: an object as it was at a moment, a deleted object or namespace, what a user or a manager changed.
//
// An undo is planned from history and applied with ordinary writes. It never changes what history has recorded; its own writes are
// recorded like all others, so an undo can be undone in the same way. An [Undo] is not stored: creating one returns it with the plan
// in its status, like a review of package authorization.
//
//	spec ──► select ──► revert (per object) ──► order ──► plan ──► apply
//	            ▲            ▲                                       │
//	         history       cluster, as the caller  ◄─────────────────┘
//
// Select finds the changes to undo, with what followed from them: what was in a deleted namespace, the objects of a deleted
// definition, and what the garbage collector deleted. Revert takes them back one by one, the newest first, as git revert does: of an
// update, the fields that it changed, unless somebody has changed them since. Updates right after each other are taken back as one, so
// that only the first and the last are read.
//
// # Rights
//
// A plan has only objects that the caller may get, and its writes pass authorization, admission and quota. The server's own rights serve
// for one thing: a deletion also destroys what its user can't see, so that is counted, and the deletion left out. What the server
// derives from who writes, and tokens that were revoked, an undo never writes, since it would lend its user's name and rights to others.
//
// # Writes
//
// What was deleted is created. What has changed is put back with a JSON merge patch that requires the resourceVersion that the plan is
// of. Server-side apply does not fit there: it removes only fields that its manager has applied before, so it could not remove a label
// that a script has added, and it would leave the undo as an owner of each field that conflicts with the next apply of its real owner.
// What was created is deleted if it still is the same version.
package undo
