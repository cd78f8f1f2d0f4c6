// Package sharedkeys stores the keys that all servers of a cluster share in the cluster's database, encrypted with a key from a
// file that is never in the database.
//
// They are one row of the log, so backup, restore, history and check treat them like any object. API resources can't have the
// row's resource name. A write replaces only the row that it read, so servers that start at the same time end up with the same
// keys.
//
// Another row has the fingerprints of the keys, wherever the keys are, so that no server with other keys serves the database.
package sharedkeys
