// Package bodies bounds what the body of a write becomes in memory.
//
// A body of 3 MiB can hold a million empty containers, each of which takes kilobytes as an object. So what a body holds is counted
// before it is decoded. A body that holds more than any real object gets 413. All others share a budget while they are handled.
//
// Small bodies are not counted, because their length bounds what they become.
package bodies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/sqube/sqube/server/decorate"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

const (
	// maxObjects is how many objects and lists a body may hold: in a list of 1.5 MB, one in 23 bytes.
	maxObjects = 64 << 10
	// maxValues is how many values it may hold in all, including the field names in managedFields.
	maxValues = 512 << 10

	// A container takes this much in both of its versions, while owners of fields are computed, and so on.
	objectBytes = 4 << 10
	// A key and its string take this much.
	valueBytes = 256

	// budgetBytes is what all bodies together may take. One more may exceed it.
	budgetBytes = 128 << 20
	// Bodies that take less than freeBytes are not limited together.
	freeBytes = 4 << 20
	// Bodies up to smallBytes are not counted.
	smallBytes = 8 << 10
)

// Limiter bounds the bodies that one server handles.
type Limiter struct {
	budget *apistorage.Budget
	// maxBytes is the limit that the handlers enforce, of which a little more is read. 0 means no limit.
	maxBytes int64
	// raw means that JSON is kept as it was sent, for the most part: its length says what it takes below rawDepth.
	raw bool
}

// NewLimiter returns the limiter of bodies of up to maxBytes; 0 means no limit.
func NewLimiter(maxBytes int64) *Limiter {
	return &Limiter{budget: apistorage.NewBudget(budgetBytes), maxBytes: maxBytes}
}

// rawDepth is how deep the containers are of such a body that are decoded at once.
const rawDepth = 5

// rawBytes is how many bytes a byte of such a body takes, with its copies.
const rawBytes = 5

// NewRawLimiter returns the limiter of the bodies of objects that keep most of what they hold as it was sent, if that is JSON. together is how
// many bytes all may take in memory.
func NewRawLimiter(maxBytes int64, together int) *Limiter {
	return &Limiter{budget: apistorage.NewBudget(together), maxBytes: maxBytes, raw: true}
}

// Kinds returns the Go type of a kind, or nil if it has none. An empty kind is the kind that the handler expects.
type Kinds func(kind schema.GroupVersionKind) reflect.Type

// KindsOf returns the types of a scheme's kinds.
func KindsOf(scheme *runtime.Scheme, expected schema.GroupVersionKind) Kinds {
	return func(kind schema.GroupVersionKind) reflect.Type {
		if kind.Empty() {
			kind = expected
		}
		if obj, err := scheme.New(kind); err == nil {
			return reflect.TypeOf(obj)
		}
		return nil
	}
}

// Limit returns a handler whose requests' bodies are bounded. A body that holds too much fails with 413 when the handler reads it. kinds
// is for protobuf; nil if the handler does not decode that.
func (l *Limiter) Limit(next http.HandlerFunc, kinds Kinds) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // invalid ones are refused elsewhere
		isYAML := strings.HasSuffix(mediaType, "yaml")
		if r.Body == nil || r.Body == http.NoBody || r.ContentLength >= 0 && r.ContentLength <= smallBytes && !isYAML {
			next(w, r)
			return
		}
		b := &body{ReadCloser: r.Body, ctx: r.Context(), limiter: l, share: l.budget.Share(), factor: 2}
		defer b.share.Release()
		switch {
		case isYAML:
			b.count, b.isYAML = countYAML, true
		case strings.HasSuffix(mediaType, "cbor"):
			b.count = countCBOR
		case mediaType == runtime.ContentTypeProtobuf:
			b.count = func(data []byte, c *counter) error { return countProtobuf(data, kinds, c) }
		case l.raw:
			b.count = countOutline
			b.factor = rawBytes
		default:
			b.count = countJSON
		}
		r = r.WithContext(r.Context()) // a shallow copy
		r.Body = b
		next(w, r)
	}
}

// body is a request's body, which is counted as a whole before the first byte of it is returned.
type body struct {
	io.ReadCloser
	ctx     context.Context
	limiter *Limiter
	share   *apistorage.Share
	count   func([]byte, *counter) error
	factor  int // how many bytes a byte takes, beside what is counted
	isYAML  bool

	counted io.Reader // nil before the first Read
	err     error
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.counted == nil && b.err == nil {
		b.counted, b.err = b.read()
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.counted.Read(p)
}

func (b *body) read() (io.Reader, error) {
	from := io.Reader(b.ReadCloser)
	if b.limiter.maxBytes > 0 {
		from = io.LimitReader(from, b.limiter.maxBytes+1)
	}
	data, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	if b.limiter.maxBytes > 0 && int64(len(data)) > b.limiter.maxBytes {
		return bytes.NewReader(data), nil // the handler refuses it
	}
	c := &counter{reserve: b.reserve}
	if err := b.count(data, c); errors.Is(err, errTooMuch) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body may hold %d objects and lists, and %d values in all", maxObjects, maxValues))
	} else if err != nil {
		return nil, err
	}
	if err := b.reserve(b.factor*len(data) + c.objects*objectBytes + c.values*valueBytes); err != nil {
		return nil, err
	}
	if b.isYAML {
		if lines := withLineBreaks(data); b.limiter.maxBytes <= 0 || int64(len(lines)) <= b.limiter.maxBytes {
			data = lines
		}
	}
	return bytes.NewReader(data), nil
}

// reserve waits until the body may take that much more memory.
func (b *body) reserve(bytes int) error {
	if bytes <= freeBytes {
		return nil
	}
	return b.share.Reserve(b.ctx, bytes)
}

// errTooMuch means that a body holds more than it may.
var errTooMuch = errors.New("the body holds too much")

// counter is what was found in a body.
type counter struct {
	objects int // structs, maps, lists, and nulls, which may become empty structs
	values  int // including objects
	// reserve waits until that much more memory may be taken.
	reserve func(bytes int) error
}

func (c *counter) object() error {
	c.objects++
	if c.objects > maxObjects {
		return errTooMuch
	}
	return c.value()
}

func (c *counter) value() error {
	c.values++
	if c.values > maxValues {
		return errTooMuch
	}
	return nil
}

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
