// Package access tests sqube against the documentation of authentication and authorization: who a client is, and what it may
// do.
package access

import (
	"slices"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Section "Authorization": what a client may do.
func TestAccess(t *testing.T) {
	kit.Prove(t, nil, slices.Concat(roles, escalation, accessReviews, nodes, []kit.Promise{kubeletAccess}, impersonation, constrainedImpersonation)...)
}
