// Package outage takes the database away from servers in all the ways that happen in practice, and checks what their clients
// receive: a server that hangs or restarts, a network that loses packets, killed connections, a client that dies during a
// commit, a standby that takes over, a pooler in between.
package outage
