package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sqube/sqube/server/openapi/internal/archive"
	"github.com/sqube/sqube/server/openapi/internal/swagger"
)

// serveV2 serves the document of all APIs.
func (s *Service) serveV2(w http.ResponseWriter, r *http.Request) {
	definitions := s.definitions()
	t, ok := negotiate(w, r, v2Types)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	etag, remotes := s.withRemotes(s.etag(definitions))
	respond(w, r, t.contentType, etag, func() ([][]byte, error) {
		if len(remotes) == 0 {
			return s.buildV2(definitions, t.form)
		}
		return get(s.rendered, fmt.Sprint("v2 merged ", t.form, etag), func() ([][]byte, error) {
			own, err := s.buildV2(definitions, asJSON)
			if err != nil {
				return nil, err
			}
			return mergeV2(own, remotes, t.form)
		})
	})
}

// pieces are the compressed parts of one definition in the document.
type pieces struct {
	paths, definitions, parameters, proto []byte
	// shared has the parts that other definitions have too. It is empty unless the built-in parts that have them are disabled.
	shared swagger.Part
}

// buildV2 assembles the document from compressed pieces.
//
//	head "paths":{ built-in … custom … } "definitions":{ built-in … custom … } "parameters":{ built-in … custom … }
//
// In protobuf, it is a sequence of messages: fields that several of them set are concatenated.
func (s *Service) buildV2(definitions []definition, f form) ([][]byte, error) {
	custom := make([]pieces, 0, len(definitions)+1)
	common := swagger.Part{}
	for _, d := range definitions {
		p, err := get(s.rendered, "v2 "+identity(d), func() (pieces, error) { return s.renderV2(d) })
		if err != nil {
			return nil, err
		}
		custom = append(custom, p)
		common.Add(p.shared)
	}
	if len(common.Names()) > 0 {
		p, err := compress(common)
		if err != nil {
			return nil, err
		}
		custom = append(custom, p)
	}
	if f == asProto {
		members := [][]byte{s.builtin.head.HeadProto.In(data)}
		for _, b := range s.builtin.v2 {
			members = append(members, b.Proto.In(data))
		}
		for _, c := range custom {
			members = append(members, c.proto)
		}
		return members, nil
	}

	j := joiner{}
	j.text("{")
	j.add(s.builtin.head.Head.In(data))
	for _, section := range []struct {
		open    string
		builtin func(archive.Fragment) archive.Span
		custom  func(pieces) []byte
	}{
		{`,"paths":{`, func(f archive.Fragment) archive.Span { return f.Paths }, func(p pieces) []byte { return p.paths }},
		{`},"definitions":{`, func(f archive.Fragment) archive.Span { return f.Definitions }, func(p pieces) []byte { return p.definitions }},
		{`},"parameters":{`, func(f archive.Fragment) archive.Span { return f.Parameters }, func(p pieces) []byte { return p.parameters }},
	} {
		j.text(section.open)
		for _, b := range s.builtin.v2 {
			j.add(section.builtin(b).In(data))
		}
		for _, c := range custom {
			j.add(section.custom(c))
		}
	}
	j.text("}}")
	return j.members, j.err
}

// joiner collects members of JSON objects, with commas where they are needed.
type joiner struct {
	members [][]byte
	comma   bool
	err     error
}

func (j *joiner) text(t string) {
	member, err := archive.Compress([]byte(t))
	if err != nil {
		j.err = err
	}
	j.members = append(j.members, member)
	j.comma = false
}

func (j *joiner) add(member []byte) {
	if len(member) == 0 {
		return
	}
	if j.comma {
		j.text(",")
	}
	j.members = append(j.members, member)
	j.comma = true
}

// renderV2 builds the parts of a definition, except those that a built-in part has already (the meta types). In upstream, too, the
// static document wins.
func (s *Service) renderV2(d definition) (pieces, error) {
	known, err := get(s.rendered, "v2 names", s.builtinNames)
	if err != nil {
		return pieces{}, err
	}
	if d, err = s.withSchemas(d); d == nil {
		return pieces{}, err
	}
	var docs []*spec.Swagger
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		doc, err := s.v2Of(d, v.Name)
		if err != nil {
			return pieces{}, err
		}
		doc.Definitions = handler.PruneDefaults(doc.Definitions)
		docs = append(docs, doc)
	}
	if overlap(docs, known) {
		if docs, err = s.besideBuiltin(docs); err != nil {
			return pieces{}, fmt.Errorf("merge OpenAPI v2 of %s: %w", d.Name, err)
		}
	}
	part := swagger.Part{}
	for _, doc := range docs {
		text, err := doc.MarshalJSON()
		if err != nil {
			return pieces{}, fmt.Errorf("render OpenAPI v2 of %s: %w", d.Name, err)
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		var whole map[string]any
		if err := decoder.Decode(&whole); err != nil {
			return pieces{}, fmt.Errorf("render OpenAPI v2 of %s: %w", d.Name, err)
		}
		for _, section := range swagger.Sections {
			values, _ := whole[section].(swagger.Object)
			part.Add(swagger.Part{section: values})
		}
	}
	part.Take(func(_, name string) bool { return known[name] })
	shared := part.Take(shared)
	p, err := compress(part)
	if err != nil {
		return pieces{}, fmt.Errorf("%s: %w", d.Name, err)
	}
	p.shared = shared
	return p, nil
}

// shared reports whether every definition refers to the name, which is the case for parameters and meta types.
func shared(section, name string) bool {
	return section == swagger.Parameters ||
		section == swagger.Definitions && (strings.HasPrefix(name, "io.k8s.apimachinery.") || strings.HasPrefix(name, "io.k8s.api.autoscaling."))
}

func compress(part swagger.Part) (pieces, error) {
	var p pieces
	for _, piece := range []struct {
		render func() ([]byte, error)
		into   *[]byte
	}{
		{func() ([]byte, error) { return swagger.Members(part[swagger.Paths]) }, &p.paths},
		{func() ([]byte, error) { return swagger.Members(part[swagger.Definitions]) }, &p.definitions},
		{func() ([]byte, error) { return swagger.Members(part[swagger.Parameters]) }, &p.parameters},
		{part.Proto, &p.proto},
	} {
		text, err := piece.render()
		if err != nil {
			return p, err
		}
		if len(text) == 0 {
			continue
		}
		if *piece.into, err = archive.Compress(text); err != nil {
			return p, err
		}
	}
	return p, nil
}

// readV2 reads a compressed document in JSON.
func readV2(members [][]byte) (*spec.Swagger, error) {
	text, err := archive.Text(members)
	if err != nil {
		return nil, err
	}
	document := &spec.Swagger{}
	if err := document.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("read OpenAPI v2: %w", err)
	}
	return document, nil
}
