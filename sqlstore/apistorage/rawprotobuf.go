package apistorage

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Protobuf responses are an envelope, a magic number and a runtime.Unknown,
// around the message of an object (API concepts, "Kubernetes Protobuf
// encoding"). In every list message field 1 is the metadata and field 2 the
// items, so a list is put together from the messages of its items.

// envelopeMagic begins every envelope.
var envelopeMagic = []byte("k8s\x00")

// errEnvelope says that an encoder has written something else.
var errEnvelope = errors.New("not an envelope of Kubernetes' protobuf encoding")

// encoded returns the envelope of the object, encoded now or before. load is
// called where that needs the object's data and they have not been read.
func (o *Raw) encoded(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, load func() error) ([]byte, error) {
	key := encodedKey{o.record.Revision, id}
	if data := o.storage.encoded.get(key); data != nil {
		return data, nil
	}
	if o.data == nil {
		if err := load(); err != nil {
			return nil, err
		}
	}
	var buffer bytes.Buffer
	if err := o.encode(encode, &buffer); err != nil {
		return nil, err
	}
	data := bytes.Clone(buffer.Bytes())
	o.storage.encoded.put(key, data)
	return data, nil
}

// writeProtobuf writes the list. The messages of all items are at hand before
// the first byte is written: an envelope tells its length first.
func (l *RawList) writeProtobuf(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	meta, err := l.meta.Marshal()
	if err != nil {
		return err
	}
	var messages [][]byte
	size := fieldSize(1, len(meta))
	for more := true; more; {
		for _, item := range l.items {
			envelope, err := item.encoded(id, encode, l.load)
			if err != nil {
				return err
			}
			message, err := unwrap(envelope)
			if err != nil {
				return err
			}
			messages = append(messages, message)
			size += fieldSize(2, len(message))
		}
		if more, err = l.nextPage(); err != nil {
			return err
		}
	}
	// The magic number alone tells the writer of responses that more will come.
	if _, err := w.Write(envelopeMagic); err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 256<<10)
	var head []byte
	head = appendField(head, 1, typeMeta(l.TypeMeta))
	head = protowire.AppendTag(head, 2, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(size))
	head = appendField(head, 1, meta)
	if _, err := out.Write(head); err != nil {
		return err
	}
	for _, message := range messages {
		head = protowire.AppendVarint(protowire.AppendTag(head[:0], 2, protowire.BytesType), uint64(len(message)))
		if _, err := out.Write(head); err != nil {
			return err
		}
		if _, err := out.Write(message); err != nil {
			return err
		}
	}
	// contentEncoding and contentType are written though they are empty.
	if _, err := out.Write(appendField(appendField(head[:0], 3, nil), 4, nil)); err != nil {
		return err
	}
	return out.Flush()
}

// typeMeta is the message runtime.TypeMeta.
func typeMeta(t metav1.TypeMeta) []byte {
	return appendField(appendField(nil, 1, []byte(t.APIVersion)), 2, []byte(t.Kind))
}

func appendField(b []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), content)
}

func fieldSize(number protowire.Number, content int) int {
	return protowire.SizeTag(number) + protowire.SizeBytes(content)
}

// unwrap returns the message in an envelope: field 2 of the runtime.Unknown,
// the last one if there are several.
func unwrap(envelope []byte) (message []byte, err error) {
	rest, ok := bytes.CutPrefix(envelope, envelopeMagic)
	if !ok {
		return nil, errEnvelope
	}
	for len(rest) > 0 {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 || kind != protowire.BytesType {
			return nil, errEnvelope
		}
		content, m := protowire.ConsumeBytes(rest[n:])
		if m < 0 {
			return nil, errEnvelope
		}
		if number == 2 {
			message = content
		}
		rest = rest[n+m:]
	}
	if message == nil {
		return nil, errEnvelope
	}
	return message, nil
}
