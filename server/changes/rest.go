package changes

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sqube/sqube/sqlstore/apistorage"
)

// REST is the storage of the resource.
type REST struct {
	table
	log *Log
}

var _ interface {
	rest.Lister
	rest.Getter
	rest.Watcher
	rest.Scoper
	rest.SingularNameProvider
	rest.CategoriesProvider
} = (*REST)(nil)

// NewREST returns the storage of the changes of a log.
func NewREST(log *Log) *REST { return &REST{log: log} }

// New implements rest.Storage.
func (*REST) New() runtime.Object { return &Change{} }

// NewList implements rest.Lister.
func (*REST) NewList() runtime.Object { return &ChangeList{} }

// Destroy implements rest.Storage.
func (*REST) Destroy() {}

// NamespaceScoped implements rest.Scoper. The changes of objects without a namespace have none either: they are listed with those of
// all namespaces, and each can be got by its name in any namespace.
func (*REST) NamespaceScoped() bool { return true }

// GetSingularName implements rest.SingularNameProvider.
func (*REST) GetSingularName() string { return "change" }

// Categories implements rest.CategoriesProvider.
func (*REST) Categories() []string { return nil }

// maxListBytes limits a list, which is in memory as a whole.
const maxListBytes = 32 << 20

// maxListRead limits what a list without a limit reads, so that one that is refused has not been computed for long.
const maxListRead = 64 << 20

// pageTime limits the search for the changes of a page. A page that then has fewer, or none, has a continue token.
const pageTime = time.Second

// errEnough ends a read.
var errEnough = errors.New("enough has been read")

// Get implements rest.Getter.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	notFound := apierrors.NewNotFound(GroupVersion.WithResource(Resource).GroupResource(), name)
	revision, err := parseRevision(name)
	if err != nil || fmt.Sprint(revision) != name {
		return nil, notFound
	}
	reader, err := r.reader(ctx)
	if err != nil {
		return nil, err
	}
	s := &Selection{}
	s.Gaps = true
	s.Between(revision-1, revision+1)
	var found *Change
	err = reader.each(ctx, s, func(e *Entry) error {
		secrets, err := reader.rights.mayGet(ctx, objectOf(e.Change))
		if err != nil {
			return err
		}
		c, err := reader.change(ctx, e, secrets)
		if err == nil && (c.Namespace == "" || c.Namespace == request.NamespaceValue(ctx)) {
			found = &c
		}
		return err
	})
	if err == nil && found == nil {
		err = notFound
	}
	return found, err
}

// reader reads for one request.
type reader struct {
	log    *Log
	rights *rights
	owners *owners
	spans  map[string]span // of transactions, by their names
}

func (r *REST) reader(ctx context.Context) (*reader, error) {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("there is no user")
	}
	rights := r.log.rightsOf(u)
	return &reader{r.log, rights, &owners{r.log, rights, map[types.UID][]ownersFrom{}}, map[string]span{}}, nil
}

func (r *reader) each(ctx context.Context, s *Selection, yield func(*Entry) error) error {
	err := r.log.each(ctx, r.rights, s, yield)
	switch {
	case errors.Is(err, errEnough):
		return nil
	case errors.Is(err, errTooMuch):
		return apierrors.NewRequestEntityTooLargeError("the changes are too many for one list: give a limit, and list them in pages, or select fewer")
	}
	return apistorage.ClientError(err)
}

// selectionOf returns what the options of a list or watch select at a moment.
func selectionOf(ctx context.Context, options *internalversion.ListOptions, now time.Time) (*Selection, error) {
	s, err := Select(options.FieldSelector, now)
	if err != nil {
		return nil, err
	}
	s.Gaps = s.includesGaps()
	none := options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set{}) // changes have no labels
	if namespace := request.NamespaceValue(ctx); namespace != "" {
		none = none || s.Namespace != nil && *s.Namespace != namespace
		s.Namespace = &namespace
	}
	if none {
		s.Between(0, 1)
	}
	return s, nil
}

// position is where a list continues. It tells a client nothing but revisions of its own pages.
type position struct {
	Snapshot int64 `json:"rv"`   // the newest revision of the list
	Last     int64 `json:"last"` // the last revision that was returned, or could have been
	Now      int64 `json:"now"`  // when the list began, in Unix milliseconds
	Kept     int64 `json:"kept"` // the revision from which on all changes were kept then
}

func (p position) token() string {
	text, _ := json.Marshal(p)
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseToken(token string) (p position, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || p.Snapshot <= 0 || p.Last <= 0 {
		return p, apierrors.NewBadRequest("the continue token is not one of this resource")
	}
	return p, nil
}

// List implements rest.Lister.
func (r *REST) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	if options == nil {
		options = &internalversion.ListOptions{}
	}
	reader, err := r.reader(ctx)
	if err != nil {
		return nil, err
	}
	at, kept, err := r.begin(ctx, reader.rights, options)
	if err != nil {
		return nil, err
	}
	s, err := selectionOf(ctx, options, time.UnixMilli(at.Now))
	if err != nil {
		return nil, err
	}
	if s.transaction != "" {
		if known, err := s.BetweenRowsOf(ctx, r.log.Store, s.transaction); err != nil {
			return nil, apistorage.ClientError(err)
		} else if !known {
			s.Between(0, 1)
		}
	}
	s.Between(0, at.Snapshot+1)
	switch {
	case at.Last == 0:
	case s.NewestFirst: // it ends where what is kept ends
		s.Between(0, at.Last)
	default:
		s.Between(at.Last, 0)
	}
	if !s.until.IsZero() && options.Continue == "" { // the log as it was then, 0 if that is not kept
		revision, err := r.log.Store.RevisionAt(ctx, s.until)
		if err != nil {
			return nil, apistorage.ClientError(err)
		}
		at.Snapshot = min(at.Snapshot, revision)
		s.Between(0, at.Snapshot+1)
	}
	began := at
	list := &ChangeList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(at.Snapshot)}, Kept: kept, Items: []Change{}}
	bytes, due := 0, time.Now().Add(pageTime)
	looking := at.Last
	if options.Limit == 0 {
		s.mostRead = maxListRead
	}
	s.looking = func(revision int64) error {
		at.Last, looking = looking, revision
		if options.Limit > 0 && at.Last != began.Last && time.Now().After(due) {
			list.Continue = at.token()
			return errEnough
		}
		return nil
	}
	err = reader.each(ctx, s, func(e *Entry) error {
		switch full := bytes >= maxListBytes; {
		case options.Limit > 0 && (full || int64(len(list.Items)) == options.Limit):
			list.Continue = at.token()
			return errEnough
		case full:
			return errTooMuch
		}
		c, err := reader.change(ctx, e, false)
		c.TypeMeta = metav1.TypeMeta{} // as in other lists
		list.Items = append(list.Items, c)
		bytes += c.size()
		return err
	})
	if err == nil && !s.NewestFirst {
		err = r.stillKept(ctx, began)
	}
	return list, err
}

// begin returns where a list begins or continues, and how far back changes are kept if it begins.
func (r *REST) begin(ctx context.Context, rights *rights, options *internalversion.ListOptions) (position, *Kept, error) {
	if options.Continue != "" {
		if options.ResourceVersion != "" && options.ResourceVersion != "0" {
			return position{}, nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		at, err := parseToken(options.Continue)
		if err == nil {
			err = r.hadBeen(ctx, at.Snapshot, 0)
		}
		return at, nil, err
	}
	wanted, err := r.await(ctx, options.ResourceVersion)
	if err != nil {
		return position{}, nil, err
	}
	since, err := r.log.Store.HistorySince(ctx)
	if err != nil {
		return position{}, nil, apistorage.ClientError(err)
	}
	at := position{Snapshot: wanted, Now: time.Now().UnixMilli(), Kept: since.Revision}
	log, err := r.log.Store.Position(ctx)
	if err == nil && options.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		if err = r.hadBeen(ctx, wanted, since.Revision); err == nil {
			at.Snapshot, err = r.log.Store.WholeTransaction(ctx, wanted)
		}
	} else {
		at.Snapshot = log.Revision
	}
	kept := &Kept{Revision: fmt.Sprint(max(since.Revision, 1)), Since: metav1.NewTime(time.UnixMilli(since.At).UTC())}
	if err == nil {
		err = kept.addRoom(ctx, rights, r.log.Store.Stats().History)
	}
	return at, kept, apistorage.ClientError(err)
}

// hadBeen returns an error unless the log has been at a revision, from an oldest one on.
func (r *REST) hadBeen(ctx context.Context, revision, oldest int64) error {
	_, lost, err := r.log.Store.HistoryFrom(ctx, revision)
	if err == nil && (lost || revision < oldest) {
		return apierrors.NewResourceExpired(fmt.Sprintf("the changes at resourceVersion %d are no longer kept: list again without it", revision))
	}
	return apistorage.ClientError(err)
}

// stillKept returns an error if changes after those of the last page have been removed since the list began.
func (r *REST) stillKept(ctx context.Context, at position) error {
	kept, _, err := r.log.Store.HistoryFrom(ctx, at.Snapshot)
	if err == nil && kept > max(at.Kept, at.Last) {
		return apierrors.NewResourceExpired("changes of this list are no longer kept: list again without the continue token")
	}
	return apistorage.ClientError(err)
}

// await waits until the log has a revision that a client names, and returns it.
func (r *REST) await(ctx context.Context, resourceVersion string) (int64, error) {
	if resourceVersion == "" {
		return 0, nil
	}
	revision, err := parseRevision(resourceVersion)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q: %v", resourceVersion, err))
	}
	return revision, apistorage.Await(ctx, r.log.Store, uint64(revision))
}
