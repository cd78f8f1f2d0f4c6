// Package serve tests what an operator of sqube sees: how it starts or fails to, what it writes and logs, how it stops, and how
// it behaves while its database is unavailable.
package serve
