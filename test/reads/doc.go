// Package reads compares, byte for byte, sqube's JSON responses to reads, which it copies from rows, with the same rows decoded
// and encoded by Kubernetes' libraries, which happens with ?pretty=true.
package reads
