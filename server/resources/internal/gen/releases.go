package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sqube/sqube/server/resources/internal/definitions"
	"github.com/sqube/sqube/server/resources/previous"
)

// keepPrevious writes the definitions of the previous minor version, and which release that is. The folder's releases.json remembers
// this release as the current one; as soon as the minor version in go.mod is a newer one, it becomes the previous one, with the schema
// that it had.
func keepPrevious(folder, kubernetes, steps string) error {
	up, err := filepath.Glob(filepath.Join(steps, "*.up.sql"))
	if err != nil || len(up) == 0 {
		return fmt.Errorf("no steps of the schema in %s: %w", steps, errors.Join(err, fs.ErrNotExist))
	}
	file := filepath.Join(folder, previous.ReleasesFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var releases previous.Releases
	if err := json.Unmarshal(text, &releases); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := releases.Move(previous.Release{Kubernetes: kubernetes, Schema: uint(len(up))}); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	d, err := ofRelease(releases.Previous.Kubernetes)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(folder, previous.DefinitionsFile), d); err != nil {
		return err
	}
	if text, err = json.MarshalIndent(releases, "", "\t"); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// ofRelease returns the definitions of a release, and the kinds that it reads but no longer publishes.
func ofRelease(kubernetesVersion string) (*definitions.Definitions, error) {
	v, err := version.ParseSemantic(kubernetesVersion)
	if err != nil {
		return nil, err
	}
	dirs, err := download(kubernetes+"@"+kubernetesVersion, fmt.Sprintf("k8s.io/api@v0.%d.%d", v.Minor(), v.Patch()))
	if err != nil {
		return nil, err
	}
	schemas, err := upstream(dirs[0])
	if err != nil {
		return nil, err
	}
	d, err := define(schemas)
	if err != nil {
		return nil, err
	}
	return d, addUnpublished(d, dirs[1])
}

// download returns the folders of modules in the module cache.
func download(modules ...string) ([]string, error) {
	cmd := exec.Command("go", append([]string{"mod", "download", "-json"}, modules...)...)
	cmd.Dir = os.TempDir() // these versions don't belong in go.sum
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download %s: %w", strings.Join(modules, " "), err)
	}
	var dirs []string
	for decoder := json.NewDecoder(strings.NewReader(string(text))); decoder.More(); {
		var downloaded struct{ Dir string }
		if err := decoder.Decode(&downloaded); err != nil {
			return nil, err
		}
		dirs = append(dirs, downloaded.Dir)
	}
	if len(dirs) != len(modules) {
		return nil, fmt.Errorf("go mod download prints %d modules of %d", len(dirs), len(modules))
	}
	return dirs, nil
}

// addUnpublished adds the kinds of k8s.io/api, of which its test data has one object each: those of old versions can be decoded, but are
// no longer served, so there is no OpenAPI.
func addUnpublished(d *definitions.Definitions, dir string) error {
	known := map[schema.GroupVersionKind]bool{}
	for _, k := range d.Kinds {
		known[schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}] = true
	}
	files, err := filepath.Glob(filepath.Join(dir, "testdata/HEAD/*.json"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no test data in %s: %w", dir, errors.Join(err, fs.ErrNotExist))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var object metav1.TypeMeta
		if err := json.Unmarshal(text, &object); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if kind := object.GroupVersionKind(); !known[kind] {
			known[kind] = true
			d.Kinds = append(d.Kinds, definitions.Kind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind})
		}
	}
	return nil
}
