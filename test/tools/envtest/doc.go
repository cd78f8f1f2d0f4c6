// Package envtest tests that controller-runtime's envtest runs on the programs that sqube envtest writes. `make
// controller-runtime` runs the whole suite of controller-runtime on them.
package envtest
