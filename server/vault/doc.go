// Package vault keeps the keys that all servers of a cluster share in the cluster's database, sealed with a key that is in
// a file of the operator's and never in the database.
//
// They are one row of the log, so backup, restore, history and check treat them as any object. Its resource has a name that
// no request can have, a CustomResourceDefinition's neither. A row that replaces another lands only if nobody was faster:
// servers that start at the same moment agree.
package vault
