// Package replicas tests that several sqube servers on one Postgres behave as one API server: they share keys, tokens, definitions and
// endpoints, one of them runs the controllers until it dies, and one may be older. For reads, lists and watches, see TestRobustness.
package replicas
