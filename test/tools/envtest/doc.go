// Package envtest tests that controller-runtime's envtest runs with the programs that sqube envtest writes. `make
// controller-runtime` runs the whole suite of controller-runtime with them.
package envtest
