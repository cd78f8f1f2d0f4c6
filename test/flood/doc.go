// Package flood runs many clients at once, with and without credentials, that send too much, read too little, or stall. It
// asserts that well-behaved clients are served all the time, and that the process stays small.
package flood
