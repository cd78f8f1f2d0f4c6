// Package replicas tests that several sqube servers on one Postgres behave as one API server: all serve what one has
// acknowledged, watches and continue tokens work across them, and one of them runs the controllers until it dies.
package replicas
