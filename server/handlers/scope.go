package handlers

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// target is one resource or subresource of one group version, and the storage behind it.
type target struct {
	group       *genericapiserver.APIGroupInfo
	version     schema.GroupVersion
	resource    string
	subresource string // empty for the resource itself
	namespaced  bool   // for a subresource, whether its resource is
	storage     rest.Storage
}

// path returns the target's name in discovery.
func (t target) path() string {
	if t.subresource == "" {
		return t.resource
	}
	return t.resource + "/" + t.subresource
}

// bug returns an error that names the target.
func (t target) bug(err error) error {
	return fmt.Errorf("serving %s of %s: %w", t.path(), t.version, err)
}

// newScope returns the scope that the target's verbs share: how objects are named, decoded, defaulted, converted and printed, and
// how field ownership is tracked.
func newScope(c Config, t target, kind schema.GroupVersionKind) (*handlers.RequestScope, error) {
	table, isTable := t.storage.(rest.TableConvertor)
	if _, isLister := t.storage.(rest.Lister); isLister && !isTable {
		return nil, errors.New("its storage supports lists but not Tables")
	}
	acceptor, _ := t.storage.(rest.GroupVersionAcceptor)
	scheme := t.group.Scheme
	scope := &handlers.RequestScope{
		Namer: handlers.ContextBasedNaming{
			Namer:         runtime.Namer(meta.NewAccessor()),
			ClusterScoped: !t.namespaced,
		},
		Serializer:                  t.group.NegotiatedSerializer,
		ParameterCodec:              t.group.ParameterCodec,
		Creater:                     stackCreater{scheme},
		Convertor:                   scheme,
		Defaulter:                   scheme,
		Typer:                       scheme,
		UnsafeConvertor:             runtime.UnsafeObjectConvertor(scheme),
		Authorizer:                  c.Authorizer,
		EquivalentResourceMapper:    c.EquivalentResources,
		TableConvertor:              table,
		Resource:                    t.version.WithResource(t.resource),
		Subresource:                 t.subresource,
		Kind:                        kind,
		AcceptsGroupVersionDelegate: acceptor,
		HubGroupVersion:             schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal},
		MetaGroupVersion:            metav1.SchemeGroupVersion,
		MaxRequestBodyBytes:         c.MaxRequestBodyBytes,
	}
	if t.group.MetaGroupVersion != nil {
		scope.MetaGroupVersion = *t.group.MetaGroupVersion
	}
	reset, err := resetFields(t.storage)
	if err != nil {
		return nil, err
	}
	scope.FieldManager, err = managedfields.NewDefaultFieldManager(c.TypeConverter, scope.UnsafeConvertor, scheme, scheme,
		kind, scope.HubGroupVersion, t.subresource, reset)
	if err != nil {
		return nil, fmt.Errorf("tracking the owners of its fields: %w", err)
	}
	return scope, nil
}

// resetFields returns the filter of the fields that the storage's strategy ignores in a write. These fields get no owner: the
// status in a write of the resource, everything else in a write of the status (KEP-555).
func resetFields(storage rest.Storage) (map[fieldpath.APIVersion]fieldpath.Filter, error) {
	plain, isPlain := storage.(rest.ResetFieldsStrategy)
	filter, isFilter := storage.(rest.ResetFieldsFilterStrategy)
	switch {
	case isPlain && isFilter:
		return nil, errors.New("its storage has two strategies for the fields it resets")
	case isPlain:
		return fieldpath.NewExcludeFilterSetMap(plain.GetResetFields()), nil
	case isFilter:
		return filter.GetResetFieldsFilter(), nil
	default:
		return nil, nil
	}
}
