package main

import "google.golang.org/protobuf/encoding/protowire"

// field finds a field in a protobuf message by the numbers on its path, and returns its bytes, nil if it is absent. Nothing else
// of the message is decoded.
func field(message []byte, path ...protowire.Number) (found []byte) {
	for _, wanted := range path {
		found = nil
		for len(message) > 0 {
			number, kind, tag := protowire.ConsumeTag(message)
			if tag < 0 {
				return nil
			}
			length := protowire.ConsumeFieldValue(number, kind, message[tag:])
			if length < 0 {
				return nil
			}
			if value := message[tag : tag+length]; number == wanted {
				if found = value; kind == protowire.BytesType {
					found, _ = protowire.ConsumeBytes(value)
				}
			}
			message = message[tag+length:]
		}
		message = found
	}
	return found
}

// protobufMagic precedes the protobuf of every object.
const protobufMagic = "k8s\x00"

// objectIn returns the object in the protobuf body of an answer, or in an event, where it follows its type.
func objectIn(body []byte) []byte {
	const raw = 2 // of runtime.Unknown
	if len(body) < len(protobufMagic) {
		return nil
	}
	return field(body[len(protobufMagic):], raw)
}

// seen is what the benchmark reads of an event of a watch in protobuf. The numbers are those in Kubernetes' generated.proto files.
type seen struct {
	kind   string // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	object []byte
	meta   []byte
}

func seenIn(event []byte) seen {
	object := objectIn(field(event, 2, 1)) // WatchEvent.object.raw
	return seen{string(field(event, 1)), object, field(object, 1)}
}

func (s seen) name() string      { return string(field(s.meta, 1)) }
func (s seen) namespace() string { return string(field(s.meta, 3)) }
func (s seen) uid() string       { return string(field(s.meta, 5)) }
func (s seen) version() string   { return string(field(s.meta, 6)) }
func (s seen) deleting() bool    { return field(s.meta, 9) != nil }

// created returns the seconds of its creationTimestamp since 1970.
func (s seen) created() int64 {
	seconds, _ := protowire.ConsumeVarint(field(s.meta, 8, 1))
	return int64(seconds)
}

// phase returns the phase of a Pod.
func (s seen) phase() string { return string(field(s.object, 3, 1)) }
