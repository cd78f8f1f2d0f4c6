// Package fakenode adds to package simnodes what tests of a running sqube need: defaults, and a kubelet's API that authenticates and authorizes
// its clients.
package fakenode
