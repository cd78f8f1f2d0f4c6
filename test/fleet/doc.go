// Package fleet tests clusters that a server hosts (serve --clusters), through clients and commands.
package fleet
