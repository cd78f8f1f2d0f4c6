// Package etcdimport converts objects that kube-apiserver stored in etcd, or in a substitute for etcd. It turns each key and value
// into the write with which sqube would have stored the same object. Values in any encoding are decrypted and decoded, and then
// encoded like those of packages resources and crd. The uid, times, managed fields, finalizers and a deletion in progress are
// kept.
//
// Objects that belong to the old servers rather than to the cluster are skipped, as are values that can't be read. The result
// for such a key has the reason.
package etcdimport
