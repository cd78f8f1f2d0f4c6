package server

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/openapi"
	"github.com/sqube/sqube/server/query"
	"github.com/sqube/sqube/server/transactions"
	"github.com/sqube/sqube/server/undo"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// timeMachine is the API group of the cluster's history.
type timeMachine struct {
	log          *changes.Log
	transactions *transactions.REST
	storages     map[string]rest.Storage // by resource
	group        *genericapiserver.APIGroupInfo
	definitions  []*apiextensionsv1.CustomResourceDefinition // of its resources, for OpenAPI
	custom       *crd.Server
	taker        *transactions.Taker
}

// historyDefinitions are made once per process.
var historyDefinitions = sync.OnceValue(func() []*apiextensionsv1.CustomResourceDefinition {
	return []*apiextensionsv1.CustomResourceDefinition{changes.Definition(), undo.Definition(), query.Definition(), transactions.Definition()}
})

func newTimeMachine(b *base, s *security, a *apis) *timeMachine {
	log := &changes.Log{
		Store: b.store, Transformer: b.encryption.Transformer, Authorizer: s.authorization.Authorizer, Served: newServedNames(a.groups, a.crd, b.store),
	}
	options := b.options.Transactions
	made := transactions.NewREST(transactions.Config{
		Store: b.store, Served: log.Served, OnBehalf: b.onBehalf, Authorizer: s.authorization.Authorizer, Client: b.client, Options: options,
	})
	undos := undo.NewREST(undo.Config{Log: log, Mirror: b.options.Mirror != nil, WithoutSecrets: b.options.Mirror != nil && !b.options.Mirror.Copy.Secrets, OnBehalf: b.onBehalf, MostTogether: options.MaxOperations, Together: func(ctx context.Context, prefix string, work func(context.Context) error) (string, error) {
		committed, err := made.Together(ctx, prefix, work)
		if err != nil {
			return "", err
		}
		return committed.Name, nil
	}})
	storages := map[string]rest.Storage{
		changes.Resource: changes.NewREST(log), undo.Resource: undos, query.Resource: query.NewREST(b.store),
	}
	definitions := historyDefinitions()
	if options.Serve {
		storages[transactions.Resource], storages[transactions.ConfirmResource] = made, transactions.NewConfirm(made)
	} else {
		definitions = slices.DeleteFunc(slices.Clone(definitions), func(d *apiextensionsv1.CustomResourceDefinition) bool {
			return d.Spec.Names.Plural == transactions.Resource
		})
	}
	server := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
	return &timeMachine{
		log: log, custom: a.crd, storages: storages, group: changes.Group(storages), definitions: definitions, transactions: made,
		taker: &transactions.Taker{REST: made, Undo: undo.NewTaker(log, b.loopback.Config(), server), Server: b.loopback.Config(), ServerID: b.id, Log: slog.Default()},
	}
}

// historyTypes are the types of all kinds with those of this group, which have no owners of fields, since they are not stored.
type historyTypes struct{ managedfields.TypeConverter }

// ObjectToTyped implements managedfields.TypeConverter.
func (t historyTypes) ObjectToTyped(o runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if changes.Scheme.Recognizes(o.GetObjectKind().GroupVersionKind()) {
		return typed.DeducedParseableType.FromUnstructured(map[string]any{})
	}
	return t.TypeConverter.ObjectToTyped(o, options...)
}

// established lists the definitions of custom resources, and of those of this group.
func (t *timeMachine) established() []*apiextensionsv1.CustomResourceDefinition {
	return slices.Concat(t.definitions, t.custom.Established())
}

// whole returns one of them with its schemas.
func (t *timeMachine) whole(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	for _, d := range t.definitions {
		if d.Name == name {
			return d, nil
		}
	}
	return t.custom.Whole(ctx, name)
}

// operations has, for OpenAPI, what can be done with each resource of this group.
func (t *timeMachine) operations() map[string]openapi.Serves {
	served := map[string]openapi.Serves{}
	for _, d := range t.definitions {
		storage := t.storages[d.Spec.Names.Plural]
		served[d.Name] = func(scope apiextensionsv1.ResourceScope, action string) bool {
			if _, within := storage.(handlers.CreaterInNamespaces); within && scope == apiextensionsv1.NamespaceScoped {
				return action == "post"
			}
			own := storage.(rest.Scoper).NamespaceScoped() == (scope == apiextensionsv1.NamespaceScoped)
			_, everywhere := storage.(handlers.CollectionDeleterEverywhere)
			return (own || everywhere && action == "deletecollection") && does(storage, action)
		}
	}
	return served
}

// does reports whether a storage can do what OpenAPI calls an action.
func does(storage rest.Storage, action string) (can bool) {
	switch action {
	case "get":
		_, can = storage.(rest.Getter)
	case "list":
		_, can = storage.(rest.Lister)
	case "post":
		_, can = storage.(rest.Creater)
	case "put":
		_, can = storage.(rest.Updater)
	case "patch":
		_, can = storage.(rest.Patcher)
	case "delete":
		_, can = storage.(rest.GracefulDeleter)
	case "deletecollection":
		_, can = storage.(rest.CollectionDeleter)
	}
	return can
}

// servedNames knows the kinds and resources that the server serves. It implements changes.Log.Served.
type servedNames struct {
	resources map[schema.GroupKind]servedName
	kinds     map[schema.GroupResource]schema.GroupVersionKind
	custom    *crd.Server
	store     *sqlstore.Store

	mu     sync.Mutex
	hidden map[string]hiddenFields // by the name of the definition
}

type servedName struct {
	schema.GroupResource
	namespaced bool
}

func newServedNames(groups []*handlers.Group, custom *crd.Server, store *sqlstore.Store) *servedNames {
	n := &servedNames{
		resources: map[schema.GroupKind]servedName{}, kinds: map[schema.GroupResource]schema.GroupVersionKind{}, custom: custom, store: store, hidden: map[string]hiddenFields{},
	}
	for _, group := range groups {
		for _, version := range slices.Backward(group.Versions) { // the first one remains
			for path, resource := range version.Resources {
				if resource.Object == "" || !resource.Gets || strings.Contains(path, "/") {
					continue
				}
				kind, name := version.WithKind(resource.Object), version.WithResource(path).GroupResource()
				n.kinds[name] = kind
				n.resources[kind.GroupKind()] = servedName{name, resource.Namespaced}
			}
		}
	}
	return n
}

func (n *servedNames) ResourceOf(kind schema.GroupKind) (schema.GroupResource, bool, bool) {
	if found, ok := n.resources[kind]; ok {
		return found.GroupResource, found.namespaced, true
	}
	for _, d := range n.custom.Established() {
		if d.Spec.Group == kind.Group && d.Status.AcceptedNames.Kind == kind.Kind {
			return schema.GroupResource{Group: kind.Group, Resource: d.Spec.Names.Plural}, d.Spec.Scope == apiextensionsv1.NamespaceScoped, true
		}
	}
	return schema.GroupResource{}, false, false
}

// currentTimeout limits how long Current waits, and currentPause is how long until it looks again.
const currentTimeout, currentPause = 5 * time.Second, 10 * time.Millisecond

func (n *servedNames) Current(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(sqlstore.WithTransaction(ctx, nil), currentTimeout)
	defer cancel()
	q := sqlstore.Query{Resource: sqlstore.Resource{Group: apiextensionsv1.GroupName, Name: "customresourcedefinitions"}, WithoutValues: true}
	for known := n.custom.Wait(ctx); known; {
		page, err := n.store.Page(ctx, q)
		if err != nil {
			return apistorage.ClientError(err)
		}
		unseen := slices.IndexFunc(page.Records, func(r *sqlstore.Record) bool { return !n.sees(r) })
		switch {
		case unseen < 0 && !page.More:
			return nil
		case unseen < 0:
			q.After = page.Records[len(page.Records)-1].Key
			continue
		}
		select {
		case <-time.After(currentPause):
		case <-ctx.Done():
			known = false
		}
	}
	err := apierrors.NewServiceUnavailable("this server has not seen all definitions yet, try again")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// sees reports whether a version of a definition, or a later one, is known.
func (n *servedNames) sees(stored *sqlstore.Record) bool {
	d, err := n.custom.Informer().Lister().Get(stored.Key)
	if err != nil {
		return false
	}
	revision, err := strconv.ParseInt(d.ResourceVersion, 10, 64)
	return err == nil && revision >= stored.Revision
}

func (n *servedNames) KindOf(resource schema.GroupResource) (schema.GroupVersionKind, bool) {
	if kind, ok := n.kinds[resource]; ok {
		return kind, true
	}
	for _, d := range n.custom.Established() {
		if d.Spec.Group == resource.Group && d.Spec.Names.Plural == resource.Resource {
			return schema.GroupVersionKind{Group: resource.Group, Version: d.Spec.Versions[0].Name, Kind: d.Status.AcceptedNames.Kind}, true
		}
	}
	return schema.GroupVersionKind{}, false
}

func (n *servedNames) Definition(resource schema.GroupResource) (string, bool) {
	if _, ok := n.kinds[resource]; ok {
		return "", false
	}
	return crd.Definition(resource)
}

func (n *servedNames) HasPlainStatus(resource schema.GroupVersionResource) bool {
	name, custom := n.Definition(resource.GroupResource())
	if !custom {
		return false
	}
	d, err := n.custom.Informer().Lister().Get(name)
	return err != nil || crd.HasPlainStatus(d, resource.Version)
}

func (n *servedNames) Hidden(ctx context.Context, resource schema.GroupResource) *changes.Hidden {
	name, custom := n.Definition(resource)
	if !custom {
		return changes.HiddenInBuiltIn(resource)
	}
	d, err := n.custom.Informer().Lister().Get(name)
	if err != nil {
		return changes.HiddenWhole
	}
	n.mu.Lock()
	known := n.hidden[name]
	n.mu.Unlock()
	if known.uid == d.UID && known.generation == d.Generation {
		return known.Hidden
	}
	whole, err := n.custom.Whole(ctx, name)
	if err != nil {
		return changes.HiddenWhole
	}
	var schemas []map[string]any
	for _, version := range whole.Spec.Versions {
		if version.Schema == nil {
			continue
		}
		s, err := runtime.DefaultUnstructuredConverter.ToUnstructured(version.Schema.OpenAPIV3Schema)
		if err != nil {
			return changes.HiddenWhole
		}
		schemas = append(schemas, s)
	}
	known = hiddenFields{whole.UID, whole.Generation, changes.HiddenInSchemas(schemas...)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.hidden) >= maxHidden {
		clear(n.hidden)
	}
	n.hidden[name] = known
	return known.Hidden
}

// maxHidden limits of how many definitions it is remembered what their objects hide.
const maxHidden = 1000

// hiddenFields is what the objects of a state of a definition hide.
type hiddenFields struct {
	uid        types.UID
	generation int64
	*changes.Hidden
}
