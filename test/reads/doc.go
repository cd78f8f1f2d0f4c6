// Package reads compares, byte for byte, what sqube answers to reads of JSON, which it copies from rows, with what the
// libraries of Kubernetes make of the same rows when they decode and encode them, which they do for ?pretty=true.
package reads
