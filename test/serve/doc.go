// Package serve tests what an operator of sqube sees: how it starts and why it does not, what it writes and says, how it
// ends, and what it does while its database is away.
package serve
