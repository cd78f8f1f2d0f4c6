// Package faults breaks what the servers under test stand on: the network between them and their database, the disk,
// the clock.
package faults
