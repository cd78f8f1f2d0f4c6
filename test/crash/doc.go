// Package crash tests what the server keeps when it is stopped, and which heartbeats it may lose when it is killed.
package crash
