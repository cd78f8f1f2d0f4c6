// Package fleet tests what those see who use clusters that a server hosts, and those who run the server.
package fleet
