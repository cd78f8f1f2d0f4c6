// Package connections bounds what clients can make a server hold and do by how they treat their connections: requests that
// are cancelled at once and again and again (HTTP/2 rapid reset, CVE-2023-44487), bodies that never end, answers that are
// never read, connections without number. Who has authenticated on a connection gets more than who has not.
//
// Go's HTTP/2 server counts handlers that run, also of streams that were reset, and closes a connection that has too many.
// [UntilDone] makes that count true; the rest is deadlines, and an account of each connection:
//
//	Configure       the limits of the http.Server
//	Admit           counts requests and cancels of each connection
//	LongRunning     lifts the deadlines of requests that may last, and ends watches that are not read
//	UntilDone       a handler has not returned before its work has
//	Authenticated   tells the account that the client is known
package connections
