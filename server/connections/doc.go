// Package connections protects the server from clients that abuse connections: requests that are cancelled at once, over and
// over (HTTP/2 rapid reset, CVE-2023-44487), bodies that never end, responses that are never read, too many connections.
// Authenticated clients get higher limits.
//
// Go's HTTP/2 server counts running handlers, including those of reset streams, and closes a connection that has too many.
// [UntilDone] makes that count correct. The rest is deadlines, and the state of each connection:
//
//	Configure       the limits of the http.Server
//	Listen          has unauthenticated connections wait for each other, and closes those whose clients do not go on
//	Admit           counts requests and cancels of each connection
//	LongRunning     removes the deadlines of long-running requests, and ends watches that are not read
//	Bodies          ends bodies that do not arrive
//	UntilDone       a handler does not return before its work is done
//	Authenticated   records that the client is authenticated
package connections
