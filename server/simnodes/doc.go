// Package simnodes simulates nodes.
package simnodes
