// Package adopt takes over what kube-apiserver has stored: it makes of each key and value in etcd, or in what stands in
// for etcd, the write by which sqube would have stored the same object. Values are decrypted and decoded, whatever form
// they have, and encoded as package resources and package crd say; uid, times, managed fields, finalizers and a deletion
// that has begun stay.
//
// What belongs to the servers that are left behind, and not to the cluster, is not taken, nor is what can't be read. Each
// such key comes back with the reason.
package adopt
