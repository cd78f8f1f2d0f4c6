// Package surface describes what clients and administrators see of an API server as a list of items, and compares sqube's with
// that of the kube-apiserver in go.mod. Its commands apiserver and manager print the
// latter, and diff what has changed between two versions.
package surface
