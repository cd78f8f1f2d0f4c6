package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sqube/sqube/server/openapi/internal/archive"
	"github.com/sqube/sqube/server/openapi/internal/swagger"
)

// fragment is a part that is served if any of its owners is.
type fragment struct {
	owners []string
	part   swagger.Part
}

// version2 splits the Swagger document, so that a server can omit disabled group versions and add custom resources by concatenating
// pieces, without parsing three megabytes.
func version2(w *archive.Writer, file, release string, enums enums) (archive.Swagger, error) {
	doc, err := readDocument(file, release)
	if err != nil {
		return archive.Swagger{}, err
	}
	delete(doc["paths"].(object), "/logs/")
	delete(doc["paths"].(object), "/logs/{logpath}")
	enums.restore(doc["definitions"].(object))

	fragments := split(doc)
	head := doc
	for _, s := range swagger.Sections {
		delete(head, s)
	}
	return store(w, head, fragments)
}

// split puts each path into the fragment of its owners, and each definition and parameter into the fragment of all owners whose
// paths refer to it.
func split(doc object) []*fragment {
	var v3Paths []string
	for path := range doc["paths"].(object) {
		v3Paths = append(v3Paths, strings.Trim(path, "/"))
	}
	users := map[string]map[string]bool{} // "section/name" to its owners; the owner "" is always served
	for path, item := range doc["paths"].(object) {
		names := owners(path, groupVersions(v3Paths))
		if len(names) == 0 {
			names = []string{""}
		}
		reach(doc, item, names, users)
		mark(users, "paths/"+path, names)
	}

	bySet := map[string]*fragment{}
	for _, section := range swagger.Sections {
		for name, value := range doc[section].(object) {
			set := users[section+"/"+name]
			list := slices.Sorted(maps.Keys(set))
			if set[""] {
				list = nil
			} else if len(list) == 0 {
				continue // used only by the paths deleted above
			}
			key := strings.Join(list, " ")
			f := bySet[key]
			if f == nil {
				f = &fragment{owners: list, part: swagger.Part{}}
				bySet[key] = f
			}
			f.part.Set(section, name, value)
		}
	}
	return slices.SortedFunc(maps.Values(bySet), func(a, b *fragment) int { return slices.Compare(a.owners, b.owners) })
}

// groupVersions returns the request paths that are group versions ("apis/apps/v1").
func groupVersions(paths []string) []string {
	var gvs []string
	for _, p := range paths {
		if strings.HasPrefix(p, "apis/") && strings.Count(p, "/") == 2 {
			gvs = append(gvs, p)
		}
	}
	slices.Sort(gvs)
	return gvs
}

// reach marks everything that value refers to, at any depth, as used by the owners.
func reach(doc object, value any, owners []string, users map[string]map[string]bool) {
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			reach(doc, e, owners, users)
		}
	case object:
		for _, e := range v {
			reach(doc, e, owners, users)
		}
		ref, _ := v["$ref"].(string)
		section, name, ok := strings.Cut(strings.TrimPrefix(ref, "#/"), "/")
		if ok && mark(users, section+"/"+name, owners) {
			reach(doc, doc[section].(object)[name], owners, users)
		}
	}
}

// mark adds owners to the name, and reports whether any of them is new.
func mark(users map[string]map[string]bool, name string, owners []string) bool {
	if users[name] == nil {
		users[name] = map[string]bool{}
	}
	before := len(users[name])
	for _, o := range owners {
		users[name][o] = true
	}
	return len(users[name]) > before
}

func store(w *archive.Writer, head object, fragments []*fragment) (archive.Swagger, error) {
	var out archive.Swagger
	text, err := swagger.Members(head)
	if err != nil {
		return out, err
	}
	if out.Head, err = w.Add(text); err != nil {
		return out, err
	}
	message, err := swagger.HeadProto(head)
	if err != nil {
		return out, err
	}
	if out.HeadProto, err = w.Add(message); err != nil {
		return out, err
	}
	for _, f := range fragments {
		stored, err := storeFragment(w, f)
		if err != nil {
			return out, fmt.Errorf("fragment of %q: %w", f.owners, err)
		}
		out.Fragments = append(out.Fragments, stored)
	}
	return out, nil
}

func storeFragment(w *archive.Writer, f *fragment) (archive.Fragment, error) {
	out := archive.Fragment{Owners: f.owners}
	for _, piece := range []struct {
		section string
		at      *archive.Span
	}{{swagger.Paths, &out.Paths}, {swagger.Definitions, &out.Definitions}, {swagger.Parameters, &out.Parameters}} {
		text, err := swagger.Members(f.part[piece.section])
		if err != nil {
			return out, err
		}
		if *piece.at, err = w.Add(text); err != nil {
			return out, err
		}
	}
	message, err := f.part.Proto()
	if err != nil {
		return out, err
	}
	if out.Proto, err = w.Add(message); err != nil {
		return out, err
	}
	out.Names, err = w.Add([]byte(strings.Join(f.part.Names(), "\n")))
	return out, err
}
