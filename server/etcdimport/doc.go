// Package etcdimport converts what kube-apiserver has stored in etcd, or in a stand-in for etcd: from each key and value it makes
// the write with which sqube would have stored the same object. Values are decrypted and decoded, whatever their encoding, and
// encoded as packages resources and crd do; uid, times, managed fields, finalizers and a deletion in progress are kept.
//
// Objects that belong to the old servers rather than to the cluster are skipped, as are values that can't be read; the result for
// such a key has the reason.
package etcdimport
