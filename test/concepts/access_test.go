package concepts

import (
	"slices"
	"testing"
)

// Section "Authorization", and what admission says about a request after it: what a client may do.
func TestAccess(t *testing.T) {
	prove(t, nil, slices.Concat(roles, escalation, accessReviews, nodes, []promise{kubeletAccess}, impersonation, constrainedImpersonation, admissionOfPods, admission)...)
}
