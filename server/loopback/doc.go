// Package loopback lets clients inside the process use the API without a network.
//
// A [Transport] is an http.RoundTripper that runs the server's own handler chain: no socket, no TLS, no port. Bodies stream both
// ways, so a watch works like over HTTP. Controllers, admission plugins and informers get it through [Transport.Config] and use
// client-go as usual; their requests pass the same filters, authentication, authorization and admission as those of any other
// client.
//
// The caller's identity is in the request's context, under a key that is private to this package. A request from a socket can't
// have it, so unlike a loopback token, it is not a secret that could leak.
package loopback
