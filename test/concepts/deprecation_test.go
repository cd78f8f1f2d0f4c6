package concepts

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// deprecated are the resources that v1.36 serves and whose use is discouraged, with what is said of them and, if there is
// to be one, the release that will no longer have them.
var deprecated = map[string]struct{ warning, removed string }{
	"/api/v1/componentstatuses":                                             {"v1 ComponentStatus is deprecated in v1.19+", ""},
	"/api/v1/endpoints":                                                     {"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice", ""},
	"/apis/networking.k8s.io/v1beta1/ipaddresses":                           {"networking.k8s.io/v1beta1 IPAddress is deprecated in v1.34+, unavailable in v1.37+", "1.37"},
	"/apis/networking.k8s.io/v1beta1/servicecidrs":                          {"networking.k8s.io/v1beta1 ServiceCIDR is deprecated in v1.34+, unavailable in v1.37+", "1.37"},
	"/apis/storage.k8s.io/v1beta1/volumeattributesclasses":                  {"storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+; use storage.k8s.io/v1 VolumeAttributesClass", "1.37"},
	"/apis/admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicies": {"admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicy is deprecated in v1.35+, unavailable in v1.38+", "1.38"},
	"/apis/coordination.k8s.io/v1beta1/leasecandidates":                     {"coordination.k8s.io/v1beta1 LeaseCandidate is deprecated in v1.36+, unavailable in v1.39+", "1.39"},
	"/apis/coordination.k8s.io/v1alpha2/leasecandidates":                    {"coordination.k8s.io/v1alpha2 LeaseCandidate is deprecated in v1.35+, unavailable in v1.38+", "1.38"},
	"/apis/resource.k8s.io/v1beta1/resourceclaims":                          {"resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+", "1.38"},
	"/apis/resource.k8s.io/v1beta2/resourceclaims":                          {"resource.k8s.io/v1beta2 ResourceClaim is deprecated in v1.36+, unavailable in v1.39+", "1.39"},
	"/apis/resource.k8s.io/v1alpha3/devicetaintrules":                       {"resource.k8s.io/v1alpha3 DeviceTaintRule is deprecated in v1.36+, unavailable in v1.39+", "1.39"},
}

// warned fails the test unless the answer has this warning and no other; "" for none.
func (a answer) warned(t testing.TB, warning string) answer {
	t.Helper()
	want := ""
	if warning != "" {
		want = `299 - "` + warning + `"`
	}
	if got := strings.Join(a.Header.Values("Warning"), "\n"); got != want {
		t.Errorf("%s: the warning is %q instead of %q", a.request, got, want)
	}
	return a
}

// deprecations are the promises on what is deprecated.
func (l auditLog) deprecations() []promise {
	return []promise{
		{"a request to a deprecated version gets a warning that says since when, until when, and what to use", func(t *testing.T, c *cluster) {
			for path, of := range deprecated {
				c.get(t, path).want(t, http.StatusOK).warned(t, of.warning)
			}
			for _, path := range []string{"/api/v1/configmaps", "/apis/networking.k8s.io/v1/ipaddresses", "/apis/autoscaling/v1/horizontalpodautoscalers", "/apis/resource.k8s.io/v1/resourceclaims"} {
				c.get(t, path).want(t, http.StatusOK).warned(t, "")
			}
		}},
		{"every verb warns, and also what fails", func(t *testing.T, c *cluster) {
			const path, warning = "/apis/storage.k8s.io/v1beta1/volumeattributesclasses", "storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+; use storage.k8s.io/v1 VolumeAttributesClass"
			one := path + "/" + c.namespace
			c.get(t, one).want(t, http.StatusNotFound).warned(t, warning)
			c.post(t, path, manifest("{metadata: {name: %s}, driverName: example.com}", c.namespace)).want(t, http.StatusUnprocessableEntity).warned(t, warning)
			c.post(t, path, manifest("{metadata: {name: %s}, driverName: example.com, parameters: {a: b}}", c.namespace)).want(t, http.StatusCreated).warned(t, warning)
			c.patch(t, mergePatch, one, `{"metadata":{"labels":{"a":"b"}}}`).want(t, http.StatusOK).warned(t, warning)
			c.put(t, one, c.get(t, one).Body).want(t, http.StatusOK).warned(t, warning)
			c.get(t, path+"?watch=true&timeoutSeconds=1").want(t, http.StatusOK).warned(t, warning)
			c.delete(t, one).want(t, http.StatusOK, http.StatusAccepted).warned(t, warning)
		}},
		{"kubectl shows the warning", func(t *testing.T, c *cluster) {
			output, ok := c.kubectl(t, "", "get", "endpoints", "-n", c.namespace)
			if want := "Warning: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\n"; !ok || !strings.Contains(output, want) {
				t.Errorf("kubectl prints\n%s", output)
			}
		}},
		{"the audit log tells that the version is deprecated, and the release that removes it", func(t *testing.T, c *cluster) {
			for path, of := range deprecated {
				_, e := l.send(t, c.client, http.MethodGet, path, nil, nil)
				want := map[string]string{"k8s.io/deprecated": "true", "k8s.io/removed-release": of.removed}
				if of.removed == "" {
					delete(want, "k8s.io/removed-release")
				}
				wantAnnotations(t, e, want)
			}
			_, e := l.send(t, c.client, http.MethodGet, c.path("v1", "configmaps"), nil, nil)
			if _, is := e.Annotations["k8s.io/deprecated"]; is {
				t.Errorf("the annotations are %v", e.Annotations)
			}
		}},
		{"a metric tells which deprecated versions have been asked for, and joins with that of requests", func(t *testing.T, c *cluster) {
			for path := range deprecated {
				c.get(t, path).want(t, http.StatusOK)
			}
			metrics := string(c.get(t, "/metrics").want(t, http.StatusOK).Body)
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
				t.Error("configmaps are deprecated")
			}
		}},
	}
}
