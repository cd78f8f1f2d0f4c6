// Package transaction writes several objects of a sqube server together or not at all. It is for authors of controllers and other clients, and
// links nothing of the server.
//
//	client, err := transaction.NewClient(config, scheme.Scheme)
//	t := client.New("")
//	t.RequireField(lease, ".spec.holderIdentity", me)
//	t.Update(from)
//	t.Update(to)
//	done, err := t.Commit(ctx)
//
// Each operation is what one request of the same user would do, and sees what the ones before it have written. Others see all of it or nothing.
//
// # Errors
//
// Of a transaction that the server has refused, nothing was written. The error is that of the operation, with the codes and reasons of
// k8s.io/apimachinery/pkg/api/errors: IsConflict if an object has another resourceVersion than the one given, or if others changed objects at
// the same time again and again. [OperationOf] says which operation it was, [RequirementOf] which requirement was not met.
//
// # Lost answers
//
// If the connection breaks before the answer comes, Commit sends the transaction again. It has a name that can be used once, so it is not
// committed twice. If the server can't be reached any more, the error is an [UnknownError]: [Client.Get] says later what became of it.
//
// A controller that must not do something twice, even if it is restarted between, names the transaction after what it does: Commit then
// returns an error for which IsAlreadyExists is true. The server knows names for a day.
package transaction
