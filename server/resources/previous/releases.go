package previous

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// The files that ../internal/gen writes.
const (
	ReleasesFile    = "releases.json"
	DefinitionsFile = "definitions.gz"
)

// Release is what a sqube was built with.
type Release struct {
	Kubernetes string `json:"kubernetes"` // such as v1.36.3
	Schema     uint   `json:"schema"`     // the newest step of the database's schema
}

// Releases are this sqube, and the last one with the previous minor version of Kubernetes.
type Releases struct {
	Current  Release `json:"current"`
	Previous Release `json:"previous"`
}

// Move makes another release the current one. If its minor version is the next one, the former release becomes the previous one. It
// returns an error, and changes nothing, if a minor version was left out, or for a version that is older than the current one.
func (r *Releases) Move(to Release) error {
	was, err := version.ParseSemantic(r.Current.Kubernetes)
	if err != nil {
		return err
	}
	is, err := version.ParseSemantic(to.Kubernetes)
	if err != nil {
		return err
	}
	switch {
	case is.Major() == was.Major() && is.Minor() == was.Minor()+1:
		r.Previous = r.Current
	case is.Major() != was.Major() || is.Minor() != was.Minor():
		return fmt.Errorf("%s does not follow %s: databases go one minor version forward and back", to.Kubernetes, r.Current.Kubernetes)
	}
	r.Current = to
	return nil
}
