// Package scenarios does what users do with a cluster, on `sqube serve --control-plane` with simulated nodes. A scenario
// asserts what a user sees: what kubectl prints, conditions, events and objects; never how long something takes. Scenarios of
// one engine share a server, run concurrently, and have a namespace each; a scenario that needs special nodes joins its own.
package scenarios
