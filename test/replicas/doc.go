// Package replicas tests that several sqube servers on one Postgres behave as one API server: what one acknowledged all
// have, watches and continue tokens move between them, and the controllers run on one of them, until it dies.
package replicas
