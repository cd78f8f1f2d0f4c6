// Package kubectl runs the real kubectl against sqube, on every engine, and compares what its user sees.
//
// The transcripts in testdata are written as a terminal shows them: lines after "$ " are commands, and what follows is
// their output. They hold what kube-apiserver answers, but where a comment says so; see transcript.go for the form and -record for how to get it.
package kubectl
