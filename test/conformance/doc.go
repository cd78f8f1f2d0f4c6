// Package conformance plays upstream's e2e specs that ask the API, the controllers and the scheduler, and need no container that really runs:
// specs.txt has their names. They are played on a server with the control plane, and inside a cluster that a server hosts, through the path
// of its URL; on both engines.
//
// That needs upstream's programs, which `make conformance` builds, and a quarter of an hour for each of the four. `make test` only checks
// that the specs are upstream's.
package conformance
