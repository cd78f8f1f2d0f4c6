package main

import (
	"crypto/sha512"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sqube/sqube/server/openapi/internal/archive"
	"github.com/sqube/sqube/server/openapi/internal/swagger"
)

const v3Suffix = "_openapi.json"

// version3 stores every OpenAPI v3 document of the folder. File names are document paths with "__" for "/".
func version3(w *archive.Writer, dir, release string, enums enums) ([]archive.Document, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), v3Suffix); ok {
			paths = append(paths, strings.ReplaceAll(name, "__", "/"))
		}
	}
	// kube-apiserver serves /logs only with --enable-logs-handler.
	paths = slices.DeleteFunc(paths, func(p string) bool { return p == "logs" })

	var docs []archive.Document
	for _, path := range paths {
		file := filepath.Join(dir, strings.ReplaceAll(path, "/", "__")+v3Suffix)
		doc, err := readDocument(file, release)
		if err != nil {
			return nil, err
		}
		if components, ok := doc["components"].(object); ok {
			if schemas, ok := components["schemas"].(object); ok {
				enums.restore(schemas)
			}
		}
		text, err := swagger.JSON(doc)
		if err != nil {
			return nil, err
		}
		d := archive.Document{Path: path, Owners: owners("/"+path, paths), ETag: fmt.Sprintf("%X", sha512.Sum512(text))}
		if d.JSON, err = w.Add(text); err != nil {
			return nil, err
		}
		docs = append(docs, d)
	}
	return docs, nil
}

// owners returns the group versions for which a request path exists: its own, or for the discovery path of a group, all versions of
// the group. A path that always exists has no owners.
func owners(path string, v3Paths []string) []string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 1:
		return []string{parts[1]}
	case parts[0] == "apis" && len(parts) > 2:
		return []string{parts[1] + "/" + parts[2]}
	case parts[0] == "apis" && len(parts) == 2:
		var versions []string
		for _, p := range v3Paths {
			if version, ok := strings.CutPrefix(p, "apis/"+parts[1]+"/"); ok {
				versions = append(versions, parts[1]+"/"+version)
			}
		}
		return versions
	}
	return nil
}
