// Package imports imports the state that a kube-apiserver has written, and holds what sqube then serves to what the
// kube-apiserver has answered. States and answers are recordings in testdata: `make record` starts kube-apiserver on etcd
// and on kine, and makes them anew.
package imports
