// Package loopback lets clients inside the process use the API without a network.
//
// A [Transport] is an http.RoundTripper that runs the server's own handler chain: no socket, no TLS, no port.
// Bodies stream both ways, so a watch works as it does over HTTP. Controllers, admission plugins and informers get
// it through [Transport.Config] and use client-go as ever; their requests pass the same filters, authentication,
// authorization and admission as those of any other client.
//
// Who the caller is travels in the request's context under a key that only this package can name. Nothing that
// arrives on a socket can carry it, so unlike a loopback token there is no secret to keep or to leak.
package loopback
