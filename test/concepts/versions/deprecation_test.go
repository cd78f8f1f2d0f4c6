package versions

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// deprecated are the deprecated resources of v1.37, with their warnings and, if known, the release that removes them.
var deprecated = map[string]struct{ warning, removed string }{
	"/api/v1/componentstatuses": {"v1 ComponentStatus is deprecated in v1.19+", ""},
	"/api/v1/endpoints":         {"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice", ""},
	"/apis/admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicies": {"admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicy is deprecated in v1.35+, unavailable in v1.38+", "1.38"},
	"/apis/coordination.k8s.io/v1beta1/leasecandidates":                     {"coordination.k8s.io/v1beta1 LeaseCandidate is deprecated in v1.36+, unavailable in v1.39+", "1.39"},
	"/apis/coordination.k8s.io/v1alpha2/leasecandidates":                    {"coordination.k8s.io/v1alpha2 LeaseCandidate is deprecated in v1.35+, unavailable in v1.38+", "1.38"},
	"/apis/resource.k8s.io/v1beta1/resourceclaims":                          {"resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+", "1.38"},
	"/apis/resource.k8s.io/v1beta2/resourceclaims":                          {"resource.k8s.io/v1beta2 ResourceClaim is deprecated in v1.36+, unavailable in v1.39+", "1.39"},
	"/apis/resource.k8s.io/v1alpha3/devicetaintrules":                       {"resource.k8s.io/v1alpha3 DeviceTaintRule is deprecated in v1.36+, unavailable in v1.39+", "1.39"},
	"/apis/certificates.k8s.io/v1beta1/clustertrustbundles":                 {"certificates.k8s.io/v1beta1 ClusterTrustBundle is deprecated in v1.37+, unavailable in v1.40+; use certificates.k8s.io/v1 ClusterTrustBundle", "1.40"},
	"/apis/certificates.k8s.io/v1beta1/podcertificaterequests":              {"certificates.k8s.io/v1beta1 PodCertificateRequest is deprecated in v1.37+, unavailable in v1.40+; use certificates.k8s.io/v1 PodCertificateRequest", "1.40"},
	"/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations":        {"storagemigration.k8s.io/v1beta1 StorageVersionMigration is deprecated in v1.37+, unavailable in v1.40+; use storagemigration.k8s.io/v1 StorageVersionMigration", "1.40"},
}

// warned fails the test unless the response has this warning and no other; "" means none.
func warned(t testing.TB, a kit.Answer, warning string) kit.Answer {
	t.Helper()
	want := ""
	if warning != "" {
		want = `299 - "` + warning + `"`
	}
	if got := strings.Join(a.Header.Values("Warning"), "\n"); got != want {
		t.Errorf("%s: the warning is %q instead of %q", a.Request, got, want)
	}
	return a
}

// deprecations are the promises about deprecated APIs.
func deprecations(l kit.AuditLog) []kit.Promise {
	return []kit.Promise{
		{Statement: "a request to a deprecated version gets a warning with the releases that deprecate and remove it, and the replacement", Proof: func(t *testing.T, c *kit.Cluster) {
			for path, of := range deprecated {
				warned(t, c.Get(t, path).OK(t), of.warning)
			}
			for _, path := range []string{"/api/v1/configmaps", "/apis/networking.k8s.io/v1/ipaddresses", "/apis/autoscaling/v1/horizontalpodautoscalers", "/apis/resource.k8s.io/v1/resourceclaims"} {
				warned(t, c.Get(t, path).OK(t), "")
			}
		}},
		{Statement: "every verb warns, and failed requests too", Proof: func(t *testing.T, c *kit.Cluster) {
			const path, warning = "/apis/resource.k8s.io/v1beta2/deviceclasses", "resource.k8s.io/v1beta2 DeviceClass is deprecated in v1.36+, unavailable in v1.39+"
			one := path + "/" + c.Namespace
			warned(t, c.Get(t, one).Want(t, http.StatusNotFound), warning)
			warned(t, c.Post(t, path, kit.Manifest("{metadata: {name: %s}, spec: {selectors: [{cel: {expression: '('}}]}}", c.Namespace)).Want(t, http.StatusUnprocessableEntity), warning)
			warned(t, c.Post(t, path, kit.Manifest("{metadata: {name: %s}}", c.Namespace)).Created(t), warning)
			warned(t, c.Patch(t, kit.MergePatch, one, `{"metadata":{"labels":{"a":"b"}}}`).OK(t), warning)
			warned(t, c.Put(t, one, c.Get(t, one).Body).OK(t), warning)
			warned(t, c.Get(t, path+"?watch=true&timeoutSeconds=1").OK(t), warning)
			warned(t, c.Delete(t, one).Want(t, http.StatusOK, http.StatusAccepted), warning)
		}},
		{Statement: "the audit log shows that the version is deprecated, and the release that removes it", Proof: func(t *testing.T, c *kit.Cluster) {
			for path, of := range deprecated {
				_, e := l.Send(t, c.Client, http.MethodGet, path, nil, nil)
				want := map[string]string{"k8s.io/deprecated": "true", "k8s.io/removed-release": of.removed}
				if of.removed == "" {
					delete(want, "k8s.io/removed-release")
				}
				kit.WantAnnotations(t, e, want)
			}
			_, e := l.Send(t, c.Client, http.MethodGet, c.Path("v1", "configmaps"), nil, nil)
			if _, is := e.Annotations["k8s.io/deprecated"]; is {
				t.Errorf("the annotations are %v", e.Annotations)
			}
		}},
		{Statement: "a metric shows which deprecated versions have been requested, and joins with that of requests", Proof: func(t *testing.T, c *kit.Cluster) {
			for path := range deprecated {
				c.Get(t, path).OK(t)
			}
			metrics := string(c.Get(t, "/metrics").OK(t).Body)
			split := regexp.MustCompile(`^/apis?/(?:(\S+)/)?(v\w+)/(\w+)$`)
			for path, of := range deprecated {
				parts := split.FindStringSubmatch(path)
				line := `apiserver_requested_deprecated_apis{group="` + parts[1] + `",removed_release="` + of.removed + `",resource="` + parts[3] + `",subresource="",version="` + parts[2] + `"} 1` + "\n"
				if !strings.Contains(metrics, line) {
					t.Errorf("no %s", line)
				}
				joined := regexp.MustCompile(`apiserver_request_total\{[^}]*group="` + regexp.QuoteMeta(parts[1]) + `",resource="` + parts[3] + `",scope="\w+",subresource="",verb="LIST",version="` + parts[2] + `"\}`)
				if !joined.MatchString(metrics) {
					t.Errorf("no %s", joined)
				}
			}
			if strings.Contains(metrics, `apiserver_requested_deprecated_apis{group="",removed_release="",resource="configmaps"`) {
				t.Error("configmaps are reported as deprecated")
			}
		}},
	}
}
