// Package outage takes the database away from servers, in every way in which that happens, and looks at what their clients
// see: a server that stands still or restarts, a network that loses packets, connections that are killed, a client that
// dies amid a commit, a standby that takes over, a pooler in between.
package outage
