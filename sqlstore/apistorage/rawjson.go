package apistorage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// head is the beginning of the JSON of an object: kind and apiVersion come first.
func head(t metav1.TypeMeta) []byte {
	b := make([]byte, 0, len(t.Kind)+len(t.APIVersion)+32)
	b = strconv.AppendQuote(append(b, `{"kind":`...), t.Kind)
	b = strconv.AppendQuote(append(b, `,"apiVersion":`...), t.APIVersion)
	return append(b, ',')
}

// writeJSON writes the stored JSON with the resourceVersion inserted. A row of another form, such as one stored in another
// version or edited by hand, is decoded and encoded.
func (o *Raw) writeJSON(encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	kept := buffers.Get().(*[]byte)
	buffer, err := o.appendJSON(slices.Grow((*kept)[:0], len(o.data)+revisionRoom+1), head(o.TypeMeta), 0, encode)
	defer putBuffer(kept, buffer)
	if err != nil {
		return err
	}
	buffer = append(buffer, '\n')
	_, err = w.Write(buffer)
	return err
}

// appendJSON appends the JSON of the object without its first skip bytes, which are part of head. The JSON begins with head
// unless the object is a custom resource.
func (o *Raw) appendJSON(buffer, head []byte, skip int, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	if before, after, ok := o.split(head); ok {
		buffer = append(buffer, before[skip:]...)
		buffer = o.appendRevision(buffer)
		return append(buffer, after...), nil
	}
	var encoded bytes.Buffer
	if err := o.encode(encode, &encoded); err != nil {
		return nil, err
	}
	text := bytes.TrimSpace(encoded.Bytes())
	if !bytes.HasPrefix(text, head[:skip]) {
		return nil, fmt.Errorf("the object at %q was encoded as a kind other than %s", o.key, o.Kind)
	}
	return append(buffer, text[skip:]...), nil
}

// encode decodes the object and encodes it.
func (o *Raw) encode(encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	obj, err := o.decode()
	if err != nil {
		return err
	}
	return encode(obj, w)
}

func (o *Raw) decode() (runtime.Object, error) {
	obj := o.storage.NewObject()
	if err := o.storage.decode(o.data, obj, o.record.Revision); err != nil {
		return nil, o.storage.undecodable(o.record, o.key, err)
	}
	return obj, o.storage.versioner.UpdateObject(obj, uint64(o.revision))
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

// split splits the stored JSON where the resourceVersion belongs: in metadata, after the uid. Only names come before that, with
// nothing nested and nothing escaped. It returns false if the JSON has another form, and for a custom resource that is not known
// to be exact; see exact.go.
func (o *Raw) split(head []byte) (before, after []byte, ok bool) {
	if o.storage.exact != nil {
		offset, ok := o.storage.offset(o.record.Revision)
		return o.data[:offset], o.data[offset:], ok
	}
	data := responseJSON(o.data)
	rest, ok := bytes.CutPrefix(data, head)
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
	offset := uid + len(uidField) + length + 1
	if bytes.ContainsAny(rest[len(metadataField):offset], `{}[\`) {
		return nil, nil, false
	}
	return data[:len(head)+offset], rest[offset:], true
}

func (l *RawList) writeJSON(encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	begin, end, err := l.frame()
	if err != nil {
		return err
	}
	separator := ""
	return l.writePages(w, end, func(buffer []byte, first bool) ([]byte, error) {
		if first {
			buffer = append(buffer, begin[1:]...)
		}
		return l.appendItems(buffer, &separator, encode)
	})
}

// writePages writes a JSON object: what appendPage appends for each page, and then end. What it appends for the first page lacks
// the first byte.
func (l *RawList) writePages(w io.Writer, end []byte, appendPage func(b []byte, first bool) ([]byte, error)) error {
	var buffer []byte
	for first := true; ; first = false {
		var err error
		if buffer, err = appendPage(buffer[:0], first); err != nil {
			return err
		}
		if first {
			// A first write of one byte makes the response writer decide on compression by the writes that follow. It comes this
			// late because no error can be reported after it.
			if _, err := io.WriteString(w, "{"); err != nil {
				return err
			}
		}
		more, err := l.nextPage()
		if err != nil {
			return err
		}
		if !more {
			buffer = append(buffer, end...)
		}
		if _, err := w.Write(buffer); err != nil || !more {
			return err
		}
	}
}

// frame returns what comes before the items and after them. The fields of a built-in list are in the order of its type, those of
// a custom resource's list are sorted.
func (l *RawList) frame() (begin, end []byte, err error) {
	if l.walk.exact == nil {
		meta, err := json.Marshal(l.meta)
		if err != nil {
			return nil, nil, err
		}
		begin = append(head(l.TypeMeta), `"metadata":`...)
		begin = append(append(begin, meta...), `,"items":[`...)
		return begin, []byte("]}\n"), nil
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{}}
	if err := l.walk.versioner.UpdateList(list, uint64(l.walk.query.Revision), l.meta.Continue, l.meta.RemainingItemCount); err != nil {
		return nil, nil, err
	}
	meta, err := json.Marshal(list.Object["metadata"])
	if err != nil {
		return nil, nil, err
	}
	begin = fmt.Appendf(nil, `{"apiVersion":%q,"items":[`, l.APIVersion)
	return begin, fmt.Appendf(nil, `],"kind":%q,"metadata":%s}`+"\n", l.Kind, meta), nil
}

// revisionRoom is the maximum length of a resourceVersion and a separator.
const revisionRoom = 48

// appendItems appends the items of a page. The items of built-in resources have no kind and apiVersion of their own.
func (l *RawList) appendItems(buffer []byte, separator *string, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	head := head(l.Item)
	skip := len(head)
	if l.walk.exact != nil {
		skip = 0
	}
	size := 0
	for _, item := range l.items {
		size += len(item.data) + revisionRoom
	}
	buffer = slices.Grow(buffer, size) // at once: growing step by step takes several times the memory
	for _, item := range l.items {
		buffer = append(buffer, *separator...)
		*separator = ","
		if skip > 0 {
			buffer = append(buffer, '{')
		}
		var err error
		if buffer, err = item.appendJSON(buffer, head, skip, encode); err != nil {
			return nil, err
		}
	}
	return buffer, nil
}
