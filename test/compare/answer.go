package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"
)

// answer is a response in the form that is compared.
type answer struct {
	code    int
	headers []string
	// documents are the body's documents: one, or for a watch one per event.
	documents []any
	// text is a body in an unknown encoding.
	text string
	// vars are the values that a script has captured so far, which name what may differ.
	vars variables
}

// compared are the headers whose values matter; present are those that only have to exist.
var (
	compared = []string{
		"Allow", "Cache-Control", "Content-Encoding", "Content-Type", "Location", "Retry-After", "Vary", "Warning", "Www-Authenticate",
		"X-Content-Type-Options", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
		"Access-Control-Expose-Headers", "Access-Control-Allow-Credentials",
	}
	present = []string{"Audit-Id", "Date", "Etag", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"}
)

func newAnswer(response *http.Response, body []byte, vars variables) answer {
	a := answer{code: response.StatusCode, vars: vars}
	for _, name := range compared {
		for _, value := range response.Header.Values(name) {
			a.headers = append(a.headers, name+": "+a.plain(value))
		}
	}
	for _, name := range present {
		if response.Header.Get(name) != "" {
			a.headers = append(a.headers, name)
		}
	}
	slices.Sort(a.headers)
	if response.Header.Get("Content-Encoding") == "gzip" {
		body = gunzip(body)
	}
	documents, err := decode(response.Header.Get("Content-Type"), body)
	if err != nil {
		a.text = a.plain(string(body))
	}
	a.documents = documents
	return a
}

// gunzip returns the uncompressed body, or the body itself if it is not gzip.
func gunzip(body []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return body
	}
	out, err := io.ReadAll(r)
	if err != nil {
		return body
	}
	return out
}

var errText = errors.New("not an encoding of objects")

// decode splits a body into its documents.
func decode(contentType string, body []byte) ([]any, error) {
	kind, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || len(body) == 0 {
		return nil, errText
	}
	switch kind {
	case "application/json", "application/json;stream=watch":
		return decodeAll(json.NewDecoder(bytes.NewReader(body)).Decode)
	case "application/yaml":
		var document any
		err := yaml.Unmarshal(body, &document)
		return []any{document}, err
	case "application/cbor":
		var document any
		err := direct.Unmarshal(body, &document)
		return []any{document}, err
	case "application/cbor-seq":
		frames, item := cbor.NewFramer().NewFrameReader(io.NopCloser(bytes.NewReader(body))), make([]byte, len(body))
		return decodeAll(func(document any) error {
			n, err := frames.Read(item)
			if err != nil {
				return err
			}
			return direct.Unmarshal(item[:n], document)
		})
	case "application/vnd.kubernetes.protobuf":
		if parameters["stream"] == "watch" {
			return decodeFrames(body)
		}
		document, err := decodeWire(body)
		return []any{document}, err
	}
	return nil, errText
}

func decodeAll(next func(any) error) (documents []any, err error) {
	for {
		var document any
		if err = next(&document); err != nil {
			break
		}
		documents = append(documents, document)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return documents, err
}

// decodeFrames reads the events of a watch in protobuf, each preceded by its length.
func decodeFrames(body []byte) ([]any, error) {
	var events []any
	for len(body) >= 4 {
		length := int(binary.BigEndian.Uint32(body))
		if len(body) < 4+length {
			return nil, io.ErrUnexpectedEOF
		}
		var event metav1.WatchEvent
		if _, _, err := rawWire.Decode(body[4:4+length], nil, &event); err != nil {
			return nil, err
		}
		object, err := decodeWire(event.Object.Raw)
		if err != nil {
			return nil, err
		}
		events = append(events, map[string]any{"type": event.Type, "object": object})
		body = body[4+length:]
	}
	return events, nil
}

// decodeWire reads an object in protobuf as generic content.
func decodeWire(body []byte) (any, error) {
	// Discovery documents do not contain their version, for historical reasons.
	object, kind, err := wire.Decode(body, &schema.GroupVersionKind{Version: "v1"}, nil)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var document any
	err = json.Unmarshal(text, &document)
	return document, err
}

// field returns a field of the first document: "metadata.continue", "items.0.metadata.name".
func (a answer) field(path string) (string, error) {
	var value any
	if len(a.documents) > 0 {
		value = a.documents[0]
	}
	for step := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(v) {
				return "", fmt.Errorf("no field %s", path)
			}
			value = v[i]
		default:
			return "", fmt.Errorf("no field %s", path)
		}
	}
	if value == nil {
		return "", fmt.Errorf("no field %s", path)
	}
	return fmt.Sprint(value), nil
}
