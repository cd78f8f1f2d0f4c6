// Package informer tests that client-go's informers see every change, in order and through a restart of the server.
package informer
