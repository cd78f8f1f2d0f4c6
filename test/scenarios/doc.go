// Package scenarios plays what people do with a cluster, on `sqube serve --control-plane` and nodes that are played. A scenario
// asserts what a user sees: what kubectl prints, conditions, events and objects; never how long something takes. Scenarios of
// one engine share a server, run at the same time, and have a namespace each; what needs nodes of a kind joins its own.
package scenarios
