package changes

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Change is one write to one object. Its name and its resourceVersion are the revision that it made. Its namespace is the object's, none
// for an object without one. It is never modified.
type Change struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Object           Object `json:"object" doc:"The object that was changed."`
	Operation        string `json:"operation" doc:"What was done: create, update or delete; or gap, see there."`
	User             string `json:"user,omitempty" doc:"Who did it: the user who was authenticated."`
	ImpersonatedUser string `json:"impersonatedUser,omitempty" doc:"The user in whose name they did it, by impersonation; absent if it was their own."`
	CredentialID     string `json:"credentialID,omitempty" doc:"What authenticated the user, if it is known: JTI=ID of a token, X509SHA256=DIGEST of a certificate. It is for those who may get changes/address."`
	FieldManager     string `json:"fieldManager,omitempty" doc:"The field manager of the request, or the first part of its user agent."`
	Address          string `json:"address,omitempty" doc:"The address of the client, if it is known. It is for those who may get changes/address."`
	AuditID          string `json:"auditID,omitempty" doc:"The id of the request in the audit log, if it is known. After client: it is one that the client has chosen."`
	SourceRevision   string `json:"sourceRevision,omitempty" doc:"In a mirror of another cluster: the resourceVersion that the change made there. Its user is absent if the cluster's audit log has not told who it was: the field manager is then the one that managedFields names."`
	Gap              *Gap   `json:"gap,omitempty" doc:"In a mirror of another cluster: what was not seen as it happened. Then operation is gap, and object has only a name, for people."`
	Transaction      string `json:"transaction,omitempty" doc:"The name of the transaction that made the change with others, all or none of them."`

	TransactionBefore string `json:"transactionBefore,omitempty" doc:"The last revision without anything of the transaction."`
	TransactionAfter  string `json:"transactionAfter,omitempty" doc:"The first revision with all of the transaction."`

	Changed        []Field  `json:"changed,omitempty" doc:"The fields that an update changed, except managedFields."`
	ChangedUnknown bool     `json:"changedUnknown,omitempty" doc:"Set if the version before an update is no longer kept, or can't be read."`
	ValuesGivenUp  bool     `json:"valuesGivenUp,omitempty" doc:"Set if values are no longer kept, for room: of changed fields, only the paths are known."`
	MoreChanged    int      `json:"moreChanged,omitempty" doc:"How many changed fields are left out, since there are too many."`
	Owners         []Object `json:"owners,omitempty" doc:"The object's controller, or its first owner if it has none, the owner of that, and so on, as they were after the change, as far as that is kept and the user may get them."`
}

// Gap is what a mirror has not seen as it happened.
type Gap struct {
	Resources []string    `json:"resources" doc:"The resources that were not followed, each with its namespace if only that is followed."`
	Since     metav1.Time `json:"since" doc:"When they were followed last."`
	Until     metav1.Time `json:"until" doc:"When they were followed again."`
	Lost      bool        `json:"lost,omitempty" doc:"Set if the cluster did not tell afterwards what had happened: only the difference is known, as changes after this one. Otherwise all of it is known, but with the times at which the cluster told it."`
}

// Object names an object.
type Object struct {
	APIVersion string    `json:"apiVersion,omitempty" doc:"The version in which it is stored."`
	Kind       string    `json:"kind,omitempty" doc:"Its kind."`
	Resource   string    `json:"resource,omitempty" doc:"The plural name of its resource."`
	Namespace  string    `json:"namespace,omitempty" doc:"Its namespace, if it has one."`
	Name       string    `json:"name" doc:"Its name."`
	UID        types.UID `json:"uid,omitempty" doc:"Its uid."`
}

// Field is a field that was changed.
type Field struct {
	Path     string                `json:"path" doc:"Its path, such as .spec.template.spec.containers[name=web].image."`
	Old      *apiextensionsv1.JSON `json:"old,omitempty" doc:"The value that it had; absent if there was no such field."`
	New      *apiextensionsv1.JSON `json:"new,omitempty" doc:"The value that it has; absent if there is no such field."`
	OldBytes *int                  `json:"oldBytes,omitempty" doc:"The length of the old value, if it is hidden, or was cut. What is left of one that was cut is a string: how its JSON begins."`
	NewBytes *int                  `json:"newBytes,omitempty" doc:"The length of the new value, if it is hidden, or was cut."`
	Hidden   bool                  `json:"hidden,omitempty" doc:"Set if the values are secret, as those of Secrets and of fields with the format password are: lists and watches have only their lengths. The change by its name has the values, for those who may get the object."`

	secret           bool
	oldSize, newSize *int // of secret values
}

// hide replaces secret values by their sizes.
func (f *Field) hide() {
	if f.secret {
		f.Old, f.New, f.OldBytes, f.NewBytes, f.Hidden = nil, nil, f.oldSize, f.newSize, true
	}
}

// ChangeList is a list of changes.
type ChangeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Kept is how far back changes are kept. Those of one list may be fewer. It is absent in pages after the first.
	Kept *Kept `json:"kept,omitempty"`

	Items []Change `json:"items"`
}

// Kept is a moment since which every change is kept.
type Kept struct {
	Revision string      `json:"revision"`
	Since    metav1.Time `json:"since"`
	// ValuesRevision and ValuesSince are set if some older values were given up for room, so that of these changes only the paths of the fields
	// are known, and GaveWay names those of whom there was most, in the namespace of the list.
	ValuesRevision string       `json:"valuesRevision,omitempty"`
	ValuesSince    *metav1.Time `json:"valuesSince,omitempty"`
	GaveWay        []GaveWay    `json:"gaveWay,omitempty"`
}

// GaveWay is a user in a namespace, "" for objects without one, values of whose changes were given up.
type GaveWay struct {
	Namespace string `json:"namespace,omitempty"`
	User      string `json:"user"`
	// UntilRevision is the last revision of these changes.
	UntilRevision string `json:"untilRevision"`
}

// DeepCopyObject implements runtime.Object.
func (c *Change) DeepCopyObject() runtime.Object { return Copy(c) }

// DeepCopyObject implements runtime.Object.
func (l *ChangeList) DeepCopyObject() runtime.Object { return Copy(l) }

// Definition describes the resource.
func Definition() *apiextensionsv1.CustomResourceDefinition {
	return Define(Change{}, Resource, "change", apiextensionsv1.NamespaceScoped, "Change is one write to one object: who changed what, and when. Its name and its resourceVersion are the revision that it made, its namespace is the object's. It can be read only by users who may see the object.")
}

// Define describes a resource of the group in the form of a CustomResourceDefinition, from which OpenAPI documents are made. The tag doc of
// a field is its description.
func Define(object any, plural, singular string, scope apiextensionsv1.ResourceScope, description string) *apiextensionsv1.CustomResourceDefinition {
	t := reflect.TypeOf(object)
	schema := schemaOf(t, description)
	id := sha256.Sum256(fmt.Appendf(nil, "%+v", schema.Properties))
	names := apiextensionsv1.CustomResourceDefinitionNames{Kind: t.Name(), ListKind: t.Name() + "List", Plural: plural, Singular: singular}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + GroupVersion.Group, UID: types.UID(fmt.Sprintf("%x", id))},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: GroupVersion.Group, Names: names, Scope: scope,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: GroupVersion.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
			}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: names},
	}
}

// schemaOf returns the schema of a type's JSON. What is never omitted is required.
func schemaOf(t reflect.Type, description string) apiextensionsv1.JSONSchemaProps {
	s := apiextensionsv1.JSONSchemaProps{Description: description}
	switch {
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem(), description)
	case t == reflect.TypeFor[metav1.Time]():
		s.Type, s.Format = "string", "date-time"
	case t == reflect.TypeFor[apiextensionsv1.JSON](), t.Kind() == reflect.Interface:
		s.XPreserveUnknownFields = ptr.To(true)
	case t.Kind() == reflect.Slice:
		item := schemaOf(t.Elem(), "")
		s.Type, s.Items = "array", &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}
	case t.Kind() == reflect.Struct:
		s.Type, s.Properties = "object", map[string]apiextensionsv1.JSONSchemaProps{}
		for field := range t.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.Anonymous || name == "" { // the metadata of all objects, or not in JSON
				continue
			}
			s.Properties[name] = schemaOf(field.Type, field.Tag.Get("doc"))
			if options == "" {
				s.Required = append(s.Required, name)
			}
		}
	default:
		s.Type = map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer"}[t.Kind()]
	}
	return s
}

// Copy returns a copy of an object of the group that shares nothing with it but fields that are not in JSON.
func Copy[T any](object *T) *T {
	copied := *object
	separate(reflect.ValueOf(&copied).Elem())
	return &copied
}

// separate replaces what a value refers to with copies.
func separate(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			copied := reflect.New(v.Type().Elem())
			copied.Elem().Set(v.Elem())
			separate(copied.Elem())
			v.Set(copied)
		}
	case reflect.Slice:
		if !v.IsNil() {
			v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
			for i := range v.Len() {
				separate(v.Index(i))
			}
		}
	case reflect.Struct:
		if meta, ok := v.Addr().Interface().(*metav1.ObjectMeta); ok {
			*meta = *meta.DeepCopy()
			return
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				separate(field)
			}
		}
	}
}
