package resources

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// stable matches the versions that are served unless the operator says otherwise: API versions are off by default until
// they are generally available (KEP-3136).
var stable = regexp.MustCompile(`^v\d+$`)

// schemes are the type registries of the built-in groups. Each of the last two holds one group of its own.
var schemes = registries{legacyscheme.Scheme, aggregatorscheme.Scheme, apiextensions.Scheme}

// DefaultVersions returns the versions that are served without --runtime-config: every stable version of every built-in group,
// including apiregistration.k8s.io and apiextensions.k8s.io. All other versions are listed as disabled, so that "api/beta=true"
// finds them.
func DefaultVersions() *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	for _, version := range schemes.PrioritizedVersionsAllGroups() {
		if stable.MatchString(version.Version) {
			config.EnableVersions(version)
		} else {
			config.DisableVersions(version)
		}
	}
	return config
}

// ParseRuntimeConfig applies the values of --runtime-config to DefaultVersions. Keys have kube-apiserver's forms: api/all,
// api/ga, api/beta, api/alpha, group/version and group/version/resource; values are "true", "false" or, for the last two,
// empty for true. The core group is v1 or api/v1, always as a whole, or has an empty name: /v1/resource. For an unknown form,
// group or version it returns an error that names the key.
func ParseRuntimeConfig(given map[string]string) (*serverstorage.ResourceConfig, error) {
	values := map[string]string{}
	for key, value := range given {
		switch first, _, _ := strings.Cut(strings.TrimPrefix(key, "api/"), "/"); {
		case first == "v1":
			values["/v1"] = value
		case key != "api/legacy": // no longer has a meaning
			values[key] = value
		}
	}
	flag := &options.APIEnablementOptions{RuntimeConfig: values}
	if errs := flag.Validate(schemes); len(errs) > 0 {
		return nil, fmt.Errorf("--runtime-config: %w", errors.Join(errs...))
	}
	config, err := resourceconfig.MergeAPIResourceConfigs(DefaultVersions(), values, schemes)
	if err != nil {
		return nil, fmt.Errorf("--runtime-config: %w", err)
	}
	return config, nil
}

// registries combines several schemes, because a value of --runtime-config may name a group of any of them, and "api/all" must be
// applied once, before more specific keys.
type registries []*runtime.Scheme

// IsGroupRegistered reports whether any scheme has types of the group.
func (r registries) IsGroupRegistered(group string) bool {
	return r.of(group) != nil
}

// IsVersionRegistered reports whether any scheme has types of the version.
func (r registries) IsVersionRegistered(version schema.GroupVersion) bool {
	scheme := r.of(version.Group)
	return scheme != nil && scheme.IsVersionRegistered(version)
}

// PrioritizedVersionsAllGroups lists the versions of every scheme.
func (r registries) PrioritizedVersionsAllGroups() []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, scheme := range r {
		versions = append(versions, scheme.PrioritizedVersionsAllGroups()...)
	}
	return versions
}

// PrioritizedVersionsForGroup lists the versions of one group, preferred first.
func (r registries) PrioritizedVersionsForGroup(group string) []schema.GroupVersion {
	if scheme := r.of(group); scheme != nil {
		return scheme.PrioritizedVersionsForGroup(group)
	}
	return nil
}

// of returns the scheme that has the group, or nil.
func (r registries) of(group string) *runtime.Scheme {
	for _, scheme := range r {
		if scheme.IsGroupRegistered(group) {
			return scheme
		}
	}
	return nil
}
