// Package virtual has tests of what takes a real cluster hours, days or months: each runs a server with what it needs in a bubble of
// testing/synctest, where time jumps when nobody has anything left to do. They are also examples for tests of your own.
package virtual
