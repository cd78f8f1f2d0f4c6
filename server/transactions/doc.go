// Package transactions serves the resource transactions of the group history.sqube.io: several writes that happen together or not at all.
//
//	Transaction ──► run: each operation is a request of its user, over the loopback ──► the storage gathers ──► Commit ──► answer
//
// # Operations
//
// An operation passes the same filters, authorization, admission, validation and registry code as a request that its user sends alone. Its
// context has the sqlstore.Transaction, so that what it stores is gathered, and what it reads has what earlier operations have stored.
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
