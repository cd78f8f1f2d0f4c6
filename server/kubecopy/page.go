package kubecopy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// page is one page of a list.
type page struct {
	resourceVersion, next string
	objects               []object
}

// object is an item of a list, whose encoding is not looked into beyond its metadata.
type object struct {
	namespace, name, resourceVersion string
	raw                              []byte
	whole                            bool // raw has the kind; else it is an item of a list in protobuf
}

// version returns the object's resourceVersion, which must be a number.
func (o *object) version() (int64, error) {
	version, err := strconv.ParseInt(o.resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersions are no numbers: %q", o.resourceVersion)
	}
	return version, nil
}

// magic precedes an object in Kubernetes' protobuf encoding.
var magic = []byte("k8s\x00")

// data returns the object in a form that storage codecs read.
func (o *object) data(apiVersion, kind string) []byte {
	if o.whole {
		return o.raw
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: o.raw}
	text, _ := unknown.Marshal() // which can't fail: it fills a buffer of the size that it has computed
	return append(append([]byte(nil), magic...), text...)
}

// parse reads a list.
func parse(contentType string, body []byte) (*page, error) {
	if strings.Contains(contentType, "protobuf") {
		return parseProtobuf(body)
	}
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ListMeta   `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the answer is no list: %w", err)
	}
	p := &page{resourceVersion: list.Metadata.ResourceVersion, next: list.Metadata.Continue}
	for _, item := range list.Items {
		var partial metav1.PartialObjectMetadata
		if err := json.Unmarshal(item, &partial); err != nil {
			return nil, fmt.Errorf("the answer has an item that is no object: %w", err)
		}
		raw := []byte(item)
		if partial.Kind == "" { // lists of built-in kinds leave it out
			kind := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, list.APIVersion, strings.TrimSuffix(list.Kind, "List"))
			raw = append([]byte(kind), strings.TrimLeft(string(item), "{ \n\t")...)
		}
		p.objects = append(p.objects, object{partial.Namespace, partial.Name, partial.ResourceVersion, raw, true})
	}
	return p, nil
}

// The numbers of fields in protobuf: of every list, of every object, and of the two kinds of metadata (generated.proto).
const (
	listMetadata, listItems       = 1, 2
	listResourceVersion, listNext = 2, 3
	objectMetadata                = 1
	objectName, objectNamespace   = 1, 3
	objectResourceVersion         = 6
)

func parseProtobuf(body []byte) (*page, error) {
	if len(body) < len(magic) || string(body[:len(magic)]) != string(magic) {
		return nil, fmt.Errorf("the answer is no object in protobuf: %.20q", body)
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(body[len(magic):]); err != nil {
		return nil, fmt.Errorf("the answer is no list: %w", err)
	}
	p := &page{}
	err := fields(unknown.Raw, func(number protowire.Number, value []byte) error {
		switch number {
		case listMetadata:
			return texts(value, map[protowire.Number]*string{listResourceVersion: &p.resourceVersion, listNext: &p.next})
		case listItems:
			o := object{raw: value}
			err := o.readMetadata(value)
			p.objects = append(p.objects, o)
			return err
		}
		return nil
	})
	return p, err
}

// readMetadata reads the metadata of a message that is an object.
func (o *object) readMetadata(message []byte) error {
	return fields(message, func(number protowire.Number, value []byte) error {
		if number != objectMetadata {
			return nil
		}
		return texts(value, map[protowire.Number]*string{
			objectName: &o.name, objectNamespace: &o.namespace, objectResourceVersion: &o.resourceVersion,
		})
	})
}

// parseObject reads an object in JSON or protobuf.
func parseObject(raw []byte) (*object, error) {
	if bytes.HasPrefix(raw, magic) {
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(raw[len(magic):]); err != nil {
			return nil, err
		}
		o := &object{raw: raw, whole: true}
		return o, o.readMetadata(unknown.Raw)
	}
	var partial metav1.PartialObjectMetadata
	err := json.Unmarshal(raw, &partial)
	return &object{partial.Namespace, partial.Name, partial.ResourceVersion, raw, true}, err
}

// texts reads fields of a message that are strings.
func texts(message []byte, into map[protowire.Number]*string) error {
	return fields(message, func(number protowire.Number, value []byte) error {
		if text := into[number]; text != nil {
			*text = string(value)
		}
		return nil
	})
}

// fields calls yield for each field of a message that has a length.
func fields(message []byte, yield func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if kind == protowire.BytesType {
			value, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return protowire.ParseError(n)
			}
			if err := yield(number, value); err != nil {
				return err
			}
			message = message[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
	}
	return nil
}

// withoutValues replaces the values of a Secret by as many letters x, unless its type is kept.
func withoutValues(data []byte, kept []corev1.SecretType) ([]byte, error) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	secret, ok := decoded.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("it is a %T", decoded)
	}
	if slices.Contains(kept, secret.Type) {
		return data, nil
	}
	for key, value := range secret.Data {
		secret.Data[key] = []byte(strings.Repeat("x", len(value)))
	}
	delete(secret.Annotations, corev1.LastAppliedConfigAnnotation) // it repeats values
	secret.APIVersion, secret.Kind = "v1", "Secret"
	return json.Marshal(secret)
}
