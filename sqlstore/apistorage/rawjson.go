package apistorage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// head is how the JSON of an object begins: kind and apiVersion come first.
func head(t metav1.TypeMeta) []byte {
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, t.Kind, t.APIVersion)
}

// writeJSON writes the stored JSON with the resourceVersion put in. A row that
// does not look as expected, because it was stored in another version or
// edited, is decoded and encoded.
func (o *Raw) writeJSON(encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	before, after, ok := o.split(head(o.TypeMeta))
	if !ok {
		return o.encode(encode, w)
	}
	buffer := make([]byte, 0, len(o.data)+64)
	buffer = append(buffer, before...)
	buffer = o.appendRevision(buffer)
	buffer = append(buffer, after...)
	buffer = append(buffer, '\n')
	_, err := w.Write(buffer)
	return err
}

// encode takes the long way.
func (o *Raw) encode(encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	obj, err := o.decode()
	if err != nil {
		return err
	}
	return encode(obj, w)
}

func (o *Raw) decode() (runtime.Object, error) {
	obj := o.storage.NewObject()
	if err := o.storage.decode(o.data, obj, o.revision); err != nil {
		return nil, undecodable(o.record, o.key, err)
	}
	return obj, nil
}

func (o *Raw) appendRevision(buffer []byte) []byte {
	buffer = append(buffer, `,"resourceVersion":"`...)
	buffer = strconv.AppendInt(buffer, o.revision, 10)
	return append(buffer, '"')
}

var (
	metadataField = []byte(`"metadata":{"`)
	uidField      = []byte(`,"uid":"`)
)

// split cuts the stored JSON where the resourceVersion belongs: in metadata,
// behind the uid. Before that come only names, so that nothing is nested there
// and nothing escaped. It returns false where the JSON has another form.
func (o *Raw) split(head []byte) (before, after []byte, ok bool) {
	rest, ok := bytes.CutPrefix(o.data, head)
	if !ok || !bytes.HasPrefix(rest, metadataField) {
		return nil, nil, false
	}
	const longest = 1 << 10
	uid := bytes.Index(rest[:min(len(rest), longest)], uidField)
	if uid < 0 {
		return nil, nil, false
	}
	length := bytes.IndexByte(rest[uid+len(uidField):], '"')
	if length < 0 {
		return nil, nil, false
	}
	cut := uid + len(uidField) + length + 1
	if bytes.ContainsAny(rest[len(metadataField):cut], `{}[\`) {
		return nil, nil, false
	}
	return o.data[:len(head)+cut], rest[cut:], true
}

func (l *RawList) writeJSON(encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	meta, err := json.Marshal(l.meta)
	if err != nil {
		return err
	}
	buffer := append(head(l.TypeMeta)[1:], `"metadata":`...)
	buffer = append(append(buffer, meta...), `,"items":[`...)
	separator := ""
	for first := true; ; first = false {
		if buffer, err = l.appendItems(buffer, &separator, encode); err != nil {
			return err
		}
		if first {
			// One byte first tells the writer of responses that more will come, so
			// that it compresses by the size of all. It comes no earlier because an
			// error can't be told as such after it.
			if _, err := io.WriteString(w, "{"); err != nil {
				return err
			}
		}
		more, err := l.nextPage()
		if err != nil {
			return err
		}
		if !more {
			buffer = append(buffer, "]}\n"...)
		}
		if _, err := w.Write(buffer); err != nil || !more {
			return err
		}
		buffer = buffer[:0]
	}
}

// appendItems appends the items of a page. Items have no kind and apiVersion of
// their own in the lists of built-in resources.
func (l *RawList) appendItems(buffer []byte, separator *string, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	prefix := head(l.Item)
	for _, item := range l.items {
		buffer = append(buffer, *separator...)
		*separator = ","
		buffer = append(buffer, '{')
		if before, after, ok := item.split(prefix); ok {
			buffer = append(buffer, before[len(prefix):]...)
			buffer = item.appendRevision(buffer)
			buffer = append(buffer, after...)
			continue
		}
		var encoded bytes.Buffer
		if err := item.encode(encode, &encoded); err != nil {
			return nil, err
		}
		text, ok := bytes.CutPrefix(bytes.TrimSpace(encoded.Bytes()), prefix)
		if !ok {
			return nil, fmt.Errorf("the object at %q was encoded as another kind than %s", item.key, l.Item.Kind)
		}
		buffer = append(buffer, text...)
	}
	return buffer, nil
}
