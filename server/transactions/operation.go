package transactions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore"
)

// named is what an operation says of its object.
type named struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace       string `json:"namespace"`
		Name            string `json:"name"`
		GenerateName    string `json:"generateName"`
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Details struct { // of a Status
		UID string `json:"uid"`
	} `json:"details"`
}

// call is the request of an operation.
type call struct {
	verb        Verb
	target      Target
	method      string
	path        string
	query       url.Values
	contentType string
	body        []byte
}

var patchTypes = map[string]types.PatchType{
	"": types.MergePatchType, "merge": types.MergePatchType, "json": types.JSONPatchType, "strategic": types.StrategicMergePatchType,
}

// subresources are those that operations can write.
var subresources = []string{"status", "scale", "finalize", "approval"}

// paths finds the paths of objects. namespace is that of objects that name none.
type paths struct {
	changes.Served
	namespace string
	defined   map[schema.GroupKind]int // the operations that define kinds
}

// call returns the request of an operation.
func (p *paths) call(o *Operation, at *field.Path) (*call, *field.Error) {
	c := &call{verb: o.Verb, query: url.Values{}}
	if o.Subresource != "" && !slices.Contains(subresources, o.Subresource) {
		return nil, field.NotSupported(at.Child("subresource"), o.Subresource, subresources)
	}
	var object named
	if o.Object != nil {
		if err := json.Unmarshal(o.Object.Raw, &object); err != nil {
			return nil, field.Invalid(at.Child("object"), "", err.Error())
		}
		c.target = Target{object.APIVersion, object.Kind, object.Metadata.Namespace, object.Metadata.Name}
	}
	switch o.Verb {
	case Create, Update, Apply:
		if o.Object == nil {
			return nil, field.Required(at.Child("object"), "")
		}
		if o.Target != nil && o.Subresource == "" {
			return nil, field.Forbidden(at.Child("target"), "the object says what it is")
		}
		c.body = o.Object.Raw
	case Patch, Delete:
		if o.Object != nil {
			return nil, field.Forbidden(at.Child("object"), "this verb has a target")
		}
		if o.Target == nil {
			return nil, field.Required(at.Child("target"), "")
		}
	default:
		return nil, field.NotSupported(at.Child("verb"), o.Verb, []Verb{Create, Update, Patch, Apply, Delete})
	}
	if o.Target != nil {
		c.target = *o.Target
	}
	if c.target.Name == "" && (o.Verb != Create || object.Metadata.GenerateName == "") {
		return nil, field.Required(at.Child("object", "metadata", "name"), "")
	}
	var err *field.Error
	if c.path, err = p.path(&c.target, at); err != nil {
		return nil, err
	}
	switch o.Verb {
	case Create:
		c.method, c.contentType = http.MethodPost, "application/json"
	case Update:
		c.method, c.contentType = http.MethodPut, "application/json"
	case Apply:
		c.method = http.MethodPatch
		kind, body := applied(o.Object.Raw)
		c.contentType, c.body = string(kind), body
	case Patch:
		kind, ok := patchTypes[o.PatchType]
		if !ok {
			return nil, field.NotSupported(at.Child("patchType"), o.PatchType, []string{"json", "merge", "strategic"})
		}
		if o.Patch == nil {
			return nil, field.Required(at.Child("patch"), "")
		}
		c.method, c.contentType, c.body = http.MethodPatch, string(kind), o.Patch.Raw
	case Delete:
		c.method, c.contentType = http.MethodDelete, "application/json"
		c.body = o.deleteOptions()
	}
	if o.Verb != Create || o.Subresource != "" {
		c.path += "/" + url.PathEscape(c.target.Name)
	}
	if o.Subresource != "" {
		c.path += "/" + o.Subresource
	}
	for name, value := range map[string]string{"fieldManager": o.FieldManager, "fieldValidation": o.FieldValidation} {
		if value != "" {
			c.query.Set(name, value)
		}
	}
	if o.Force {
		c.query.Set("force", "true")
	}
	return c, nil
}

// path returns the path of the collection of an object, and completes its namespace.
func (p *paths) path(t *Target, at *field.Path) (string, *field.Error) {
	version, err := schema.ParseGroupVersion(t.APIVersion)
	if err != nil || t.APIVersion == "" {
		return "", field.Invalid(at, t.APIVersion, "want an apiVersion")
	}
	kind := version.WithKind(t.Kind).GroupKind()
	resource, namespaced, ok := p.ResourceOf(kind)
	if i, defined := p.defined[kind]; !ok && defined {
		return "", field.Invalid(at, t.Kind, fmt.Sprintf("operations[%d] defines this kind, and objects of it can be written when that is committed: write the definition first, in a transaction of its own", i))
	}
	if !ok {
		return "", field.Invalid(at, t.Kind, fmt.Sprintf("no matches for kind %q in version %q that this server stores", t.Kind, t.APIVersion))
	}
	path := "/apis/" + t.APIVersion
	if version.Group == "" {
		path = "/api/" + t.APIVersion
	}
	if namespaced {
		if t.Namespace == "" {
			t.Namespace = p.namespace
		}
		path += "/namespaces/" + url.PathEscape(t.Namespace)
	}
	return path + "/" + resource.Resource, nil
}

// definitions returns the operations that write a CustomResourceDefinition, by the kind that it defines.
func definitions(operations []Operation) map[schema.GroupKind]int {
	found := map[schema.GroupKind]int{}
	for i, o := range operations {
		var definition struct {
			APIVersion, Kind string
			Spec             struct {
				Group string
				Names struct{ Kind string }
			}
		}
		if o.Object == nil || json.Unmarshal(o.Object.Raw, &definition) != nil || definition.Kind != "CustomResourceDefinition" {
			continue
		}
		found[schema.GroupKind{Group: definition.Spec.Group, Kind: definition.Spec.Names.Kind}] = i
	}
	return found
}

func (o *Operation) deleteOptions() []byte {
	options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, GracePeriodSeconds: o.GracePeriodSeconds}
	if o.PropagationPolicy != "" {
		options.PropagationPolicy = (*metav1.DeletionPropagation)(&o.PropagationPolicy)
	}
	if p := o.Preconditions; p != nil {
		options.Preconditions = &metav1.Preconditions{}
		if p.UID != "" {
			options.Preconditions.UID = (*types.UID)(&p.UID)
		}
		if p.ResourceVersion != "" {
			options.Preconditions.ResourceVersion = &p.ResourceVersion
		}
	}
	body, _ := json.Marshal(options) // which can't fail
	return body
}

// send sends the request, and returns the answer and its warnings. If that is an error, so is its Status.
func (c *call) send(ctx context.Context, transport http.RoundTripper) (body []byte, warnings []string, err error) {
	u := &url.URL{Scheme: "http", Host: "loopback.invalid", Path: c.path, RawQuery: c.query.Encode()}
	if raw, err := url.Parse(c.path); err == nil {
		u.Path, u.RawPath = raw.Path, raw.RawPath
	}
	var sent io.Reader
	if c.body != nil {
		sent = bytes.NewReader(c.body)
	}
	request, err := http.NewRequestWithContext(ctx, c.method, u.String(), sent)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	request.Header.Set("Accept", "application/json")
	if c.contentType != "" {
		request.Header.Set("Content-Type", c.contentType)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, nil, c.unanswered(ctx, err)
	}
	defer func() { _ = response.Body.Close() }() // it is read to its end
	if body, err = io.ReadAll(response.Body); err != nil {
		return nil, nil, c.unanswered(ctx, err)
	}
	parsed, _ := utilnet.ParseWarningHeaders(response.Header.Values("Warning"))
	for _, w := range parsed {
		warnings = append(warnings, w.Text)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return nil, warnings, FailureOf(response.StatusCode, body)
	}
	return body, warnings, nil
}

// unanswered returns the error of a request that got no answer.
func (c *call) unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return apierrors.NewTimeoutError("the transaction takes too long: split it, or give its request a longer timeout", 0)
	}
	return apierrors.NewInternalError(err)
}

// FailureOf returns the error that an answer is.
func FailureOf(code int, body []byte) *apierrors.StatusError {
	status := metav1.Status{}
	if json.Unmarshal(body, &status) == nil && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", string(body), 0, true)
}

// result returns what became of an operation, from its answer.
func (c *call) result(body []byte, warnings []string) (Result, error) {
	var object named
	if err := json.Unmarshal(body, &object); err != nil {
		return Result{}, apierrors.NewInternalError(fmt.Errorf("the answer to the operation is no object: %w", err))
	}
	r := Result{
		Verb: c.verb, APIVersion: c.target.APIVersion, Kind: c.target.Kind, Namespace: c.target.Namespace, Name: c.target.Name,
		Warnings: warnings, Object: &apiextensionsv1.JSON{Raw: body},
	}
	if object.Kind == "Status" { // of a deletion
		r.UID = object.Details.UID
		return r, nil
	}
	r.Name, r.UID, r.ResourceVersion = object.Metadata.Name, object.Metadata.UID, object.Metadata.ResourceVersion
	return r, nil
}

// unwritten completes the result of an operation that has written nothing: a revision that its object was never stored at is taken out.
func (r *Result) unwritten() error {
	if revision, err := strconv.ParseInt(r.ResourceVersion, 10, 64); err != nil || !sqlstore.IsProvisional(revision) {
		return nil
	}
	return r.setVersion("")
}

// committedAs sets the resourceVersion of a result, also in its object.
func (r *Result) committedAs(revision int64) error {
	return r.setVersion(strconv.FormatInt(revision, 10))
}

// setVersion sets the resourceVersion; "" for none. In the object, it is found by its text: decoding each object once more would be a tenth of
// the CPU time of a transaction.
func (r *Result) setVersion(version string) error {
	before := fmt.Appendf(nil, `"resourceVersion":%q`, r.ResourceVersion)
	known := r.ResourceVersion != ""
	r.ResourceVersion = version
	if r.Object == nil || !known {
		return nil // the answer to a deletion is a Status
	}
	var after []byte
	if version != "" {
		after = fmt.Appendf(nil, `"resourceVersion":%q`, version)
	}
	head, tail, found := bytes.Cut(r.Object.Raw, before)
	if !found {
		return fmt.Errorf("the answer to the operation on %s %s has no %s", r.Kind, r.Name, before)
	}
	if version == "" {
		if rest, ok := bytes.CutPrefix(tail, []byte(",")); ok {
			tail = rest
		} else {
			head = bytes.TrimSuffix(head, []byte(","))
		}
	}
	r.Object.Raw = slices.Concat(head, after, tail)
	return nil
}
