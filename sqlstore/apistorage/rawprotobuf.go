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

// kept returns the envelope of the object if it has been encoded before.
func (o *Raw) kept(id runtime.Identifier) []byte {
	return o.storage.encoded.get(encodedKey{o.record.Revision, id})
}

// encoded returns the envelope of the object, encoded now or before.
func (o *Raw) encoded(id runtime.Identifier, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	return o.storage.encoded.obtain(encodedKey{o.record.Revision, id}, func() ([]byte, error) {
		var buffer bytes.Buffer
		if err := o.encode(encode, &buffer); err != nil {
			return nil, err
		}
		return bytes.Clone(buffer.Bytes()), nil
	})
}

// message returns the message of the i-th item of the page, and lets go of the
// item.
func (l *RawList) message(i int, id runtime.Identifier, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	item := l.items[i]
	envelope := item.kept(id)
	if envelope == nil {
		if item.data == nil {
			if err := l.load(i); err != nil {
				return nil, err
			}
		}
		var err error
		if envelope, err = item.encoded(id, encode); err != nil {
			return nil, err
		}
	}
	l.items[i] = nil
	return unwrap(envelope)
}

// errLength says that what was written is not as long as the envelope says.
var errLength = errors.New("the list has changed its length while it was written")

// writeProtobuf writes the list. An envelope tells its length first, so every
// message is made before the first byte is written. They are held until then
// as long as there is room for that; of a list that is longer, the rest is
// read and made a second time.
func (l *RawList) writeProtobuf(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	meta, err := l.meta.Marshal()
	if err != nil {
		return err
	}
	var held [][]byte
	room := &roomShare{room: l.walk.held}
	defer room.giveBack()
	var rest *walk // from the page on in which the first is that is not held
	skip := 0      // in that page
	size := fieldSize(1, len(meta))
	for more := true; more; {
		for i := range l.items {
			message, err := l.message(i, id, encode)
			if err != nil {
				return err
			}
			size += fieldSize(2, len(message))
			switch {
			case rest != nil:
			case room.take(len(message)), held == nil:
				held = append(held, message)
			default:
				page := l.page
				rest, skip = &page, i
			}
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
	size -= fieldSize(1, len(meta))
	write := func(message []byte) error {
		size -= fieldSize(2, len(message))
		head = protowire.AppendVarint(protowire.AppendTag(head[:0], 2, protowire.BytesType), uint64(len(message)))
		if _, err := out.Write(head); err != nil {
			return err
		}
		_, err := out.Write(message)
		return err
	}
	for _, message := range held {
		if err := write(message); err != nil {
			return err
		}
	}
	if rest != nil {
		l.walk = rest
		for ; ; skip = 0 {
			if more, err := l.nextPage(); err != nil {
				return err
			} else if !more {
				break
			}
			for i := skip; i < len(l.items); i++ {
				message, err := l.message(i, id, encode)
				if err != nil {
					return err
				}
				if err := write(message); err != nil {
					return err
				}
			}
		}
	}
	if size != 0 {
		return errLength
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
