// Package fleet tests clusters that a server hosts (sqube serve --clusters), from outside.
package fleet
