package apistorage

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Protobuf responses are an envelope, a magic number and a runtime.Unknown, around the message of an object (API concepts,
// "Kubernetes Protobuf encoding"). In every list message field 1 is the metadata and field 2 the items, so a list is put together
// from the messages of its items.

// envelopeMagic begins every envelope.
var envelopeMagic = []byte("k8s\x00")

var errEnvelope = errors.New("not an envelope of Kubernetes' protobuf encoding")

// storedMessage returns the message of the stored object: the one kept with the row, which must not be changed, or the end of
// grown, which is b with the message appended. It returns false if the object must be decoded.
func (o *Raw) storedMessage(b []byte) (message, grown []byte, ok bool) {
	s := o.storage
	k := s.protobuf
	if k == nil || k.kind != o.TypeMeta {
		return nil, b, false
	}
	if kept := s.store.Encoding(o.revision); kept != nil {
		return kept, b, true
	}
	if !k.is(o.data) {
		return nil, b, false
	}
	grown, exact, err := k.forms().message.Append(b, o.data, strconv.FormatInt(o.revision, 10))
	if err != nil {
		return nil, b, false
	}
	message = grown[len(b):]
	// The kept message is also used for decoding, so it must be exact. Encrypted values stay encrypted in memory.
	if exact && !o.change && o.revision == o.record.Revision && !o.record.Withheld() {
		if kept := s.store.KeepEncoding(s.resource, o.record, message); kept != nil {
			return kept, grown[:len(b)], true
		}
	}
	return message, grown, true
}

// message is storedMessage for any object, decoding it if necessary.
func (o *Raw) message(b []byte, encode func(runtime.Object, io.Writer) error) (message, grown []byte, err error) {
	if message, grown, ok := o.storedMessage(b); ok {
		return message, grown, nil
	}
	var envelope bytes.Buffer
	if err := o.encode(encode, &envelope); err != nil {
		return nil, b, err
	}
	message, err = unwrap(envelope.Bytes())
	return message, b, err
}

// writeProtobuf writes the object in its envelope.
func (o *Raw) writeProtobuf(encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	keptMessage, keptEnvelope := buffers.Get().(*[]byte), buffers.Get().(*[]byte)
	message, grown, err := o.message((*keptMessage)[:0], encode)
	defer putBuffer(keptMessage, grown)
	envelope := append((*keptEnvelope)[:0], envelopeMagic...)
	envelope = appendField(envelope, 1, typeMeta(o.TypeMeta))
	envelope = appendField(envelope, 2, message)
	envelope = append(envelope, envelopeEnd...)
	defer putBuffer(keptEnvelope, envelope)
	if err != nil {
		return err
	}
	_, err = w.Write(envelope)
	return err
}

// envelopeEnd is contentEncoding and contentType, which are written although they are empty.
var envelopeEnd = appendField(appendField(nil, 3, nil), 4, nil)

// errLength is the error for a list that is not as long as its envelope says.
var errLength = errors.New("the list changed its length while it was written")

// writeProtobuf writes the list. Its length comes first, so every message is made before the first byte is written. Messages are
// held until then as far as the budget allows; the rest of a longer list is read and made twice.
func (l *RawList) writeProtobuf(encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	meta, err := l.meta.Marshal()
	if err != nil {
		return err
	}
	var held [][]byte
	share := l.walk.heldBudget.Share()
	defer share.Release()
	var rest *walk // from the first page that is not held
	var page protobufPage
	items := 0
	for more := true; more; {
		if err := page.make(l.items, encode); err != nil {
			return err
		}
		items += page.size
		switch {
		case rest != nil:
		case share.tryReserve(page.size), held == nil:
			held = append(held, page.messages...)
			page.made = nil
		default:
			from := l.page
			rest = &from
		}
		if more, err = l.nextPage(); err != nil {
			return err
		}
	}
	// A small first write, as in writePages.
	if _, err := w.Write(envelopeMagic); err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(w, chunkBytes)
	head := appendField(nil, 1, typeMeta(l.TypeMeta))
	head = protowire.AppendTag(head, 2, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(fieldSize(1, len(meta))+items))
	if _, err := buffered.Write(appendField(head, 1, meta)); err != nil {
		return err
	}
	if err := writeItems(buffered, held); err != nil {
		return err
	}
	for _, message := range held {
		items -= fieldSize(itemsNumber, len(message))
	}
	if rest != nil {
		held, l.walk = nil, rest
		for {
			if more, err := l.nextPage(); err != nil {
				return err
			} else if !more {
				break
			}
			if err := page.make(l.items, encode); err != nil {
				return err
			}
			items -= page.size
			if err := writeItems(buffered, page.messages); err != nil {
				return err
			}
		}
	}
	if items != 0 {
		return errLength
	}
	if _, err := buffered.Write(envelopeEnd); err != nil {
		return err
	}
	return buffered.Flush()
}

const (
	// itemsNumber is the number of the items field of a list.
	itemsNumber = 2
	// chunkBytes is how much of a list is written at once.
	chunkBytes = 128 << 10
)

type protobufPage struct {
	messages [][]byte
	made     []byte // the buffer of the messages that are not kept with their rows
	size     int    // of the messages as fields of the list
}

// make replaces the messages with those of items.
func (p *protobufPage) make(items []*Raw, encode func(runtime.Object, io.Writer) error) error {
	p.messages, p.made, p.size = p.messages[:0], p.made[:0], 0
	for _, item := range items {
		message, made, err := item.message(p.made, encode)
		if err != nil {
			return err
		}
		p.messages, p.made = append(p.messages, message), made
		p.size += fieldSize(itemsNumber, len(message))
	}
	return nil
}

func writeItems(w *bufio.Writer, messages [][]byte) error {
	for _, message := range messages {
		head := protowire.AppendTag(w.AvailableBuffer(), itemsNumber, protowire.BytesType)
		if _, err := w.Write(protowire.AppendVarint(head, uint64(len(message)))); err != nil {
			return err
		}
		if _, err := w.Write(message); err != nil {
			return err
		}
	}
	return nil
}

// typeMeta returns the message runtime.TypeMeta.
func typeMeta(t metav1.TypeMeta) []byte {
	return appendField(appendField(nil, 1, []byte(t.APIVersion)), 2, []byte(t.Kind))
}

func appendField(b []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), content)
}

func fieldSize(number protowire.Number, content int) int {
	return protowire.SizeTag(number) + protowire.SizeBytes(content)
}

// unwrap returns a copy of the message in an envelope.
func unwrap(envelope []byte) (message []byte, err error) {
	rest, ok := bytes.CutPrefix(envelope, envelopeMagic)
	var content runtime.Unknown
	if !ok || content.Unmarshal(rest) != nil || content.Raw == nil {
		return nil, errEnvelope
	}
	return content.Raw, nil
}
