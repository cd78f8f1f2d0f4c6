package loopback

import "k8s.io/client-go/rest"

// host is a name for URLs only, never looked up; ".invalid" is reserved for this (RFC 6761, section 6.4).
const host = "http://loopback.invalid"

// Config returns a new client-go configuration whose requests go through t as the loopback user, without a rate
// limit. The caller may change it: ContentType and UserAgent are usual, and Impersonate makes a client act as someone
// with fewer rights. Copies keep the transport and with it the identity; that includes rest.AnonymousClientConfig.
func (t *Transport) Config() *rest.Config {
	return &rest.Config{
		Host:      host,
		Transport: t,
		QPS:       -1,
	}
}
