package access

import (
	"slices"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// Section "Authorization": what a client may do.
func TestAccess(t *testing.T) {
	kit.Prove(t, nil, slices.Concat(roles, escalation, accessReviews, nodes, []kit.Promise{kubeletAccess}, impersonation, constrainedImpersonation)...)
}
