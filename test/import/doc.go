// Package imports imports the state that a kube-apiserver has written, and compares what sqube then serves with the
// kube-apiserver's responses. States and responses are recordings in testdata: `make record` starts kube-apiserver on etcd and
// on kine, and records them again.
package imports
