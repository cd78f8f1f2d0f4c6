// Package transactions serves the resource transactions of the group history.sqube.io: several writes that happen together or not at all.
//
//	Transaction ──► run: each operation is a request of its user, over the loopback ──► the storage gathers ──► Commit ──► answer
//
// # Operations
//
// An operation passes the same filters, authorization, admission, validation and registry code as a request that its user sends alone. Its
// context has the sqlstore.Transaction, so that what it stores is gathered, and what it reads has what earlier operations have stored.
//
// # What is looked up
//
// Plugins of admission look things up in informers, and ask the server without the context of the request. In a transaction they are other
// instances, which see what it has written; see package admission. A registry that asks the server with the operation's context joins the
// transaction through loopback.Transport.Join. Rights, webhooks, policies, their parameters and definitions are those that are committed.
//
// # What upstream's code holds on to
//
//   - Addresses and node ports of Services are allocated outside of the transaction, and released at its end: server/resources. Its commit
//     requires that the addresses are still allocated.
//   - A quota's usage is counted within the transaction, so a refused one counts nothing; two that count in one quota at once conflict, and
//     the second one runs again.
//   - An update that removes the last finalizer deletes, and a deletion with a grace period or a finalizer updates, as for single requests. A
//     name can be used again after its deletion. The status of a Service can't release its addresses by removing its last finalizer.
//   - A definition is established by controllers after the commit: its objects need another transaction.
//   - Default service accounts are made by a controller after the commit: a Pod in a new namespace needs one of the transaction's.
//   - Binding, eviction, tokens and what reaches a kubelet are no operations, since they do more than to write.
//
// # Dry runs
//
// A dry run gathers writes too, so that its operations see each other, and ends without a commit. So handlers and the registry see no dryRun;
// plugins of admission do, and Services allocate nothing.
//
// # Audit
//
// Audit events of operations have the id of their transaction. They are held back until it ends, and then say what became of it.
//
// # Conflicts
//
// Others may change the same objects meanwhile: nothing is locked. The commit then fails, and the operations run again on the new state, as
// single writes do, until the attempts or the time of the request are used up.
//
// # Records
//
// The commit's first row is a record of the transaction under its name: who made it, and what it wrote. It is what a get of the transaction
// returns. A second transaction with the name is refused while the record is kept.
package transactions
