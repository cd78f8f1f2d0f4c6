//go:build !linux

package main

// unmapCode does nothing: it is for Linux only.
func unmapCode() error { return nil }
