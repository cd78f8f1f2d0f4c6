// Package crash tests what the server keeps when it is stopped or killed, and how it stops.
package crash
