package apistorage

import (
	"bytes"
	"errors"
	"io"
	"strconv"

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

// storedMessage appends the message of the object as it is stored, or returns
// false where it has to be decoded for that.
func (o *Raw) storedMessage(b []byte) ([]byte, bool) {
	s := o.storage
	g := s.generated
	if g == nil || g.kind != o.TypeMeta || !g.is(o.data) {
		return b, false
	}
	if form := s.store.Form(o.revision); form != nil {
		return append(b, form...), true
	}
	message, exact, err := g.message.Append(b, o.data, strconv.FormatInt(o.revision, 10))
	if err != nil {
		return b, false
	}
	// What is kept is decoded too. What is encrypted stays so in memory.
	if exact && o.revision == o.record.Revision && !o.record.Withheld() {
		s.store.Keep(s.resource, o.record, message[len(b):])
	}
	return message, true
}

// appendMessage appends the message of the object.
func (o *Raw) appendMessage(b []byte, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	if message, ok := o.storedMessage(b); ok {
		return message, nil
	}
	var envelope bytes.Buffer
	if err := o.encode(encode, &envelope); err != nil {
		return b, err
	}
	message, err := unwrap(envelope.Bytes())
	return append(b, message...), err
}

// writeProtobuf writes the object in its envelope.
func (o *Raw) writeProtobuf(encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	message, err := o.appendMessage(nil, encode)
	if err != nil {
		return err
	}
	envelope := make([]byte, 0, len(message)+128)
	envelope = append(envelope, envelopeMagic...)
	envelope = appendField(envelope, 1, typeMeta(o.TypeMeta))
	envelope = appendField(envelope, 2, message)
	_, err = w.Write(append(envelope, envelopeEnd...))
	return err
}

// envelopeEnd is contentEncoding and contentType, which are written though they
// are empty.
var envelopeEnd = appendField(appendField(nil, 3, nil), 4, nil)

// errLength says that what was written is not as long as the envelope says.
var errLength = errors.New("the list has changed its length while it was written")

// writeProtobuf writes the list. An envelope tells its length first, so every
// message is made before the first byte is written. They are held until then
// as long as there is room for that; of a list that is longer, the rest is
// read and made a second time.
func (l *RawList) writeProtobuf(encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	meta, err := l.meta.Marshal()
	if err != nil {
		return err
	}
	var held [][]byte // the items of a page each
	room := &roomShare{room: l.walk.held}
	defer room.giveBack()
	var rest *walk // from the page on that is not held
	size := fieldSize(1, len(meta))
	var items []byte
	for more := true; more; {
		if items, err = l.appendFields(items[:0], encode); err != nil {
			return err
		}
		size += len(items)
		switch {
		case rest != nil:
		case room.take(len(items)), held == nil:
			held = append(held, bytes.Clone(items))
		default:
			page := l.page
			rest = &page
		}
		if more, err = l.nextPage(); err != nil {
			return err
		}
	}
	// The magic number alone tells the writer of responses that more will come.
	if _, err := w.Write(envelopeMagic); err != nil {
		return err
	}
	head := appendField(nil, 1, typeMeta(l.TypeMeta))
	head = protowire.AppendTag(head, 2, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(size))
	head = appendField(head, 1, meta)
	if _, err := w.Write(head); err != nil {
		return err
	}
	size -= fieldSize(1, len(meta))
	for i, items := range held {
		held[i] = nil
		size -= len(items)
		if _, err := w.Write(items); err != nil {
			return err
		}
	}
	if rest != nil {
		l.walk = rest
		for {
			if more, err := l.nextPage(); err != nil {
				return err
			} else if !more {
				break
			}
			if items, err = l.appendFields(items[:0], encode); err != nil {
				return err
			}
			size -= len(items)
			if _, err := w.Write(items); err != nil {
				return err
			}
		}
	}
	if size != 0 {
		return errLength
	}
	_, err = w.Write(envelopeEnd)
	return err
}

// appendFields appends the items of the page at hand as fields of a list.
func (l *RawList) appendFields(b []byte, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	var message []byte
	for _, item := range l.items {
		var err error
		if message, err = item.appendMessage(message[:0], encode); err != nil {
			return b, err
		}
		b = appendField(b, 2, message)
	}
	return b, nil
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
