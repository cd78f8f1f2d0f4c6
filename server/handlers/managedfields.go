package handlers

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers"
)

// hiddenFields hides the managed fields of one request's object after mutating admission until the storage gets the object. Upstream's
// handlers decode them in between, in case a webhook has made them invalid, so they are hidden only if admission has not changed them.
type hiddenFields struct {
	admission.Interface
	object metav1.Object // nil while nothing is hidden
	fields []metav1.ManagedFieldsEntry
}

// Handles implements admission.Interface.
func (h *hiddenFields) Handles(operation admission.Operation) bool {
	return h.Interface != nil && h.Interface.Handles(operation)
}

// Admit implements admission.MutationInterface.
func (h *hiddenFields) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	mutating, ok := h.Interface.(admission.MutationInterface)
	if !ok {
		return nil
	}
	object, err := meta.Accessor(a.GetObject())
	if err != nil {
		return mutating.Admit(ctx, a, o)
	}
	before := slices.Clone(object.GetManagedFields())
	if err := mutating.Admit(ctx, a, o); err != nil {
		return err
	}
	if after := object.GetManagedFields(); len(after) > 0 && slices.Equal(before, after) && !areOf(a.GetOldObject(), after) {
		h.object, h.fields = object, after
		object.SetManagedFields(nil)
	}
	return nil
}

// areOf reports whether the fields are those of the current object, as they are after an error in upstream's field manager.
func areOf(current runtime.Object, fields []metav1.ManagedFieldsEntry) bool {
	m, err := meta.Accessor(current)
	return err == nil && len(m.GetManagedFields()) > 0 && &m.GetManagedFields()[0] == &fields[0]
}

// Validate implements admission.ValidationInterface.
func (h *hiddenFields) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if validating, ok := h.Interface.(admission.ValidationInterface); ok {
		return validating.Validate(ctx, a, o)
	}
	return nil
}

// show ends the hiding.
func (h *hiddenFields) show() {
	if h.object != nil {
		h.object.SetManagedFields(h.fields)
		h.object = nil
	}
}

// unmanaged returns the request and the scope for a patch. A strategic merge patch is made of the whole object, of which the managed fields
// are the part that takes longest. If the patch does not name them, they are left out: upstream takes them from the current object then.
func unmanaged(r *http.Request, scope *handlers.RequestScope) (*http.Request, *handlers.RequestScope) {
	if mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); mediaType != string(types.StrategicMergePatchType) {
		return r, scope
	}
	body := &namingBody{ReadCloser: r.Body}
	r = r.WithContext(r.Context()) // a shallow copy
	r.Body = body
	without := *scope
	without.UnsafeConvertor = unmanagedConvertor{scope.UnsafeConvertor, body}
	return r, &without
}

// namingBody is the body of a patch.
type namingBody struct {
	io.ReadCloser
	read  []byte // the last bytes
	names bool   // that the body may name the managed fields
}

const managedFields = "managedfields"

func (b *namingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.names {
		b.read = append(b.read, p[:n]...)
		// A name may also be written in escapes.
		b.names = bytes.Contains(bytes.ToLower(b.read), []byte(managedFields)) || bytes.Contains(b.read, []byte(`\u`))
		b.read = append(b.read[:0], b.read[max(0, len(b.read)-len(managedFields)):]...)
	}
	return n, err
}

// unmanagedConvertor converts the current object for a patch.
type unmanagedConvertor struct {
	runtime.ObjectConvertor
	patch *namingBody
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (c unmanagedConvertor) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	out, err := c.ObjectConvertor.ConvertToVersion(in, target)
	if err != nil || out == in || c.patch.names {
		return out, err
	}
	if m, err := meta.Accessor(out); err == nil {
		m.SetManagedFields(nil)
	}
	return out, nil
}
