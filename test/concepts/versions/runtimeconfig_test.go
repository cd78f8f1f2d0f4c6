package versions

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// discovered returns the resources of a group version, without subresources.
func discovered(t testing.TB, c *kit.Client, path string) []string {
	t.Helper()
	var names []string
	for _, resource := range c.Get(t, path).OK(t).Value(t, "resources").([]any) {
		if name := kit.ObjectOf(resource)["name"].(string); !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// groupVersions returns the group versions of /apis, in order.
func groupVersions(t testing.TB, c *kit.Client) []string {
	t.Helper()
	var names []string
	for _, group := range c.Get(t, "/apis").OK(t).Value(t, "groups").([]any) {
		for _, version := range kit.ObjectOf(group)["versions"].([]any) {
			names = append(names, kit.ObjectOf(version)["groupVersion"].(string))
		}
	}
	return names
}

// Section "Enabling or disabling API groups".
func TestRuntimeConfig(t *testing.T) {
	kit.Prove(t, []string{"--runtime-config=api/beta=true,resource.k8s.io/v1beta1=false,coordination.k8s.io/v1alpha2,resource.k8s.io/v1alpha3/devicetaintrules=true",
		"--runtime-config=batch/v1=false,apps/v1/daemonsets=false,/v1/podtemplates=false,api/legacy=true"},
		kit.Promise{Statement: "a disabled version is neither served nor discovered", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, path := range []string{"/apis/batch/v1", "/apis/batch", c.Path("batch/v1", "jobs"), "/openapi/v3/apis/batch/v1"} {
				c.Get(t, path).Want(t, http.StatusNotFound)
			}
			c.Post(t, c.Path("batch/v1", "jobs"), kit.Manifest("{metadata: {name: a}}")).Want(t, http.StatusNotFound)
			if slices.Contains(groupVersions(t, c.Client), "batch/v1") {
				t.Error("batch/v1 is discovered")
			}
		}},
		kit.Promise{Statement: "a disabled resource is not served, others in its version are", Proof: func(t *testing.T, c *kit.Cluster) {
			for version, resource := range map[string]string{"apps/v1": "daemonsets", "v1": "podtemplates"} {
				c.Get(t, c.Path(version, resource)).Want(t, http.StatusNotFound)
				if names := discovered(t, c.Client, strings.TrimSuffix(c.ClusterPath(version), "/")); slices.Contains(names, resource) || len(names) < 4 {
					t.Errorf("%s has %v", version, names)
				}
			}
			c.Get(t, c.Path("apps/v1", "deployments")).OK(t)
			c.Get(t, c.Path("v1", "pods")).OK(t)
		}},
		kit.Promise{Statement: "an enabled version, with or without =true, is served, discovered and in OpenAPI", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Post(t, c.Path("coordination.k8s.io/v1alpha2", "leasecandidates"), kit.Manifest(`{metadata: {name: a}, spec: {leaseName: l, binaryVersion: 1.36.0,
				emulationVersion: 1.36.0, strategy: OldestEmulationVersion}}`)).Created(t)
			if names := discovered(t, c.Client, "/apis/coordination.k8s.io/v1alpha2"); !slices.Equal(names, []string{"leasecandidates"}) {
				t.Errorf("it has %v", names)
			}
			if !strings.Contains(string(c.Get(t, "/openapi/v3").Body), `"apis/coordination.k8s.io/v1alpha2"`) {
				t.Error("OpenAPI does not have it")
			}
			kit.Equal(t, c.Get(t, "/apis/coordination.k8s.io").Text(t, "preferredVersion", "version"), "v1")
		}},
		kit.Promise{Statement: "single resources of a disabled version can be enabled", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Get(t, "/apis/resource.k8s.io/v1alpha3/devicetaintrules").OK(t)
			if names := discovered(t, c.Client, "/apis/resource.k8s.io/v1alpha3"); !slices.Equal(names, []string{"devicetaintrules"}) {
				t.Errorf("it has %v", names)
			}
		}},
		kit.Promise{Statement: "all versions of a maturity can be enabled or disabled, and single versions override that", Proof: func(t *testing.T, c *kit.Cluster) {
			versions := groupVersions(t, c.Client)
			for _, on := range []string{"certificates.k8s.io/v1beta1", "storagemigration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1beta1", "resource.k8s.io/v1beta2", "apps/v1"} {
				if !slices.Contains(versions, on) {
					t.Errorf("%s is disabled", on)
				}
			}
			for _, off := range []string{"resource.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1", "internal.apiserver.k8s.io/v1alpha1"} {
				if slices.Contains(versions, off) {
					t.Errorf("%s is enabled", off)
				}
			}
		}},
	)
}

func TestRuntimeConfigFaults(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"api/all=perhaps":                       "invalid value api/all=perhaps",
		"api/alpha":                             "invalid value api/alpha=",
		"api/all=false":                         "invalid runtime-config with only api/all=false",
		"nothing/v1=true":                       "unknown api groups nothing/v1",
		"batch/v7=true":                         "group version batch/v7 that has not been registered",
		"batch/v1=perhaps":                      `invalid value of batch/v1: perhaps, err: strconv.ParseBool: parsing "perhaps": invalid syntax`,
		"apps/v1/Deployments=true":              `resource is always lowercase plural, not "Deployments"`,
		"a/b/c/d=true":                          "runtime-config invalid key a/b/c/d",
		"flowcontrol.apiserver.k8s.io/v1=false": "--enable-priority-and-fairness",
		"api/ga=false":                          "--enable-priority-and-fairness",
	} {
		kit.RefusesToStart(t, "--runtime-config", want, "--runtime-config="+value)
	}
}

// Section "Deprecating a feature or behavior" of the deprecation policy, and the concept "System metrics".
func TestFeatureGates(t *testing.T) {
	kit.Prove(t, []string{"--feature-gates=WatchCacheInitializationPostStartHook=true,WatchList=false", "--feature-gates=DeclarativeValidationTakeover=false", "--disabled-metrics=apiserver_request_total"},
		kit.Promise{Statement: "setting a gate that is GA or deprecated is logged", Proof: func(t *testing.T, c *kit.Cluster) {
			log := c.Server.Log(t)
			for gate, warning := range map[string]string{"WatchCacheInitializationPostStartHook": "Warning: setting GA feature gate.", "DeclarativeValidationTakeover": "Warning: setting deprecated feature gate."} {
				if !slices.ContainsFunc(strings.Split(log, "\n"), func(line string) bool { return strings.Contains(line, warning) && strings.Contains(line, gate) }) {
					t.Errorf("the log has no %q for %s:\n%s", warning, gate, log)
				}
			}
			if strings.Contains(log, "featureGate=WatchList") {
				t.Error("the log mentions WatchList")
			}
		}},
		kit.Promise{Statement: "a disabled feature is not available", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Get(t, c.Path("v1", "configmaps")+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1").
				Invalid(t, "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		}},
		kit.Promise{Statement: "metrics show which features are enabled, and their stage", Proof: func(t *testing.T, c *kit.Cluster) {
			metrics := string(c.Get(t, "/metrics").Body)
			for _, line := range []string{
				`kubernetes_feature_enabled{name="WatchCacheInitializationPostStartHook",stage=""} 1`, `kubernetes_feature_enabled{name="WatchList",stage="BETA"} 0`,
				`kubernetes_feature_enabled{name="DeclarativeValidationTakeover",stage="DEPRECATED"} 0`,
			} {
				if !strings.Contains(metrics, line+"\n") {
					t.Errorf("no %s", line)
				}
			}
		}},
		kit.Promise{Statement: "a metric can be disabled", Proof: func(t *testing.T, c *kit.Cluster) {
			if metrics := string(c.Get(t, "/metrics").Body); strings.Contains(metrics, "apiserver_request_total") || !strings.Contains(metrics, "apiserver_request_duration_seconds") {
				t.Error("the metric is not disabled")
			}
		}},
	)
}

func TestFeatureGateFaults(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"NoSuchGate=true": "unrecognized feature gate: NoSuchGate",
		"WatchCacheInitializationPostStartHook=false": "cannot set feature gate WatchCacheInitializationPostStartHook to false, feature is locked to true",
		"WatchList":         "missing bool value for WatchList",
		"WatchList=perhaps": "invalid value of WatchList=perhaps",
	} {
		kit.RefusesToStart(t, "--feature-gates", want, "--feature-gates="+value)
	}
	kit.RefusesToStart(t, "--show-hidden-metrics-for-version", "must be omitted or have the value '1.36'; only the previous minor version is allowed", "--show-hidden-metrics-for-version=1.30")
}
