// Package trials tries changes with `sqube try`, and asserts what a user sees: the result, the exit code, and that the cluster stays as it was.
package trials
