// Package kubectl runs the real kubectl against sqube, each transcript on one of the engines, and compares its output.
//
// The transcripts in testdata look like a terminal session: lines after "$ " are commands, followed by their output. They have
// kube-apiserver's results, except where a comment says otherwise; see transcript.go for the format and -record for how to
// record them.
package kubectl
