package bodies

import (
	"bytes"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/sqube/sqube/server/decorate"
)

// What a stored object may be: more than a body, because defaults and the owners of its fields are added to it.
const (
	maxStoredBytes   = 8 << 20
	maxStoredObjects = 2 * maxObjects
	maxStoredValues  = 2 * maxValues
)

// Stored returns a decorator whose storages refuse what no body can hold, with 413: patches, and webhooks, could let an object grow
// without end.
func Stored(next generic.StorageDecorator) generic.StorageDecorator {
	return decorate.Config(next, func(c *storagebackend.ConfigForResource) { c.Codec = boundedCodec{c.Codec} })
}

type boundedCodec struct{ runtime.Codec }

// Encode implements runtime.Encoder.
func (c boundedCodec) Encode(obj runtime.Object, w io.Writer) error {
	buffer, ok := w.(*bytes.Buffer) // as runtime.Encode passes it
	if !ok {
		buffer = &bytes.Buffer{}
	}
	begin := buffer.Len()
	if err := c.Codec.Encode(obj, buffer); err != nil {
		return err
	}
	data := buffer.Bytes()[begin:]
	count := counter{objects: maxObjects - maxStoredObjects, values: maxValues - maxStoredValues}
	if len(data) > maxStoredBytes || len(data) > smallBytes && countJSON(data, &count) != nil {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the resulting object may have %d bytes, %d objects and lists, and %d values in all",
			maxStoredBytes, maxStoredObjects, maxStoredValues))
	}
	if ok {
		return nil
	}
	_, err := w.Write(data)
	return err
}
