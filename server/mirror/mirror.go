package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/kubecopy"
	"github.com/sqube/sqube/sqlstore"
)

// Options say which cluster is followed, and how.
type Options struct {
	// Config reaches the cluster, as a user who may read what is followed, and create TokenReviews and SubjectAccessReviews.
	Config *rest.Config
	// Copy limits what is followed.
	Copy kubecopy.Options
	// AuditLog is a file that the cluster's API server writes audit events to; "" for none.
	AuditLog string
	// AuditWebhook is set if an audit webhook of the cluster sends events to AuditPath.
	AuditWebhook bool
}

const (
	// retryFirst and retryLast are how long a request that failed is not repeated, at first and at last.
	retryFirst, retryLast = time.Second, 30 * time.Second
	// refusedRetry is how long a resource that may not be read is not tried again.
	refusedRetry = 5 * time.Minute
	// rediscovery is how often it is looked which resources there are, besides after changes of definitions.
	rediscovery = 10 * time.Minute
	// settling is how long after such a change: a definition is not served at once.
	settling = time.Second
)

// Follower follows a cluster.
type Follower struct {
	options Options
	store   *sqlstore.Store
	log     *slog.Logger
	cluster *kubecopy.Cluster
	authors *authors

	events     chan event
	rediscover chan struct{}
	streams    map[string]*stream // by name; only for Run
	following  sync.WaitGroup

	mu   sync.Mutex
	lost *loss // what the streams that have lost something gather
}

// New returns a follower into a store. It fails if the store's database has objects that are not those of a mirror.
func New(ctx context.Context, options Options, store *sqlstore.Store, log *slog.Logger) (*Follower, error) {
	f := &Follower{
		options: options, store: store, log: log, authors: newAuthors(options.AuditLog != "" || options.AuditWebhook),
		rediscover: make(chan struct{}, 1),
	}
	_, err := f.begin(ctx)
	return f, err
}

// Run follows until ctx ends. It returns an error if the store's database is not one of a mirror of this cluster, or if another process follows
// into it.
func (f *Follower) Run(ctx context.Context) error {
	if f.options.AuditLog != "" {
		var reading sync.WaitGroup
		reading.Go(func() { f.authors.followFile(ctx, f.options.AuditLog, f.log) })
		defer reading.Wait()
	}
	err := f.retry(ctx, "following the cluster", func() error { return f.follow(ctx) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// follow follows until ctx ends, or until something fails.
func (f *Follower) follow(ctx context.Context) error {
	state, err := f.begin(ctx)
	if err != nil {
		return err
	}
	if f.cluster, err = kubecopy.Open(ctx, f.options.Config, f.options.Copy); err == nil {
		err = f.identify(ctx, state)
	}
	if err == nil {
		err = f.define(ctx)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	from := state.starts()
	f.events, f.streams = make(chan event, 256), map[string]*stream{}
	w := &writer{Follower: f, state: state}
	var writing sync.WaitGroup
	writing.Go(func() { cancel(w.run(ctx)) })
	f.discoverOften(ctx, from)
	f.following.Wait()
	writing.Wait()
	return context.Cause(ctx)
}

// define reads the definitions of custom resources, if the user may.
func (f *Follower) define(ctx context.Context) error {
	err := f.cluster.Define(ctx)
	if kubecopy.Unreadable(err) {
		f.log.Warn("custom resources are not followed", "reason", err)
		return nil
	}
	return err
}

// fatal is an error that no retry repairs.
type fatal struct{ error }

// retry calls do until it succeeds. It returns the error of ctx if that ends before, or a fatal one.
func (f *Follower) retry(ctx context.Context, what string, do func() error) error {
	for pause := retryFirst; ; pause = min(2*pause, retryLast) {
		err := do()
		var stop fatal
		if err == nil || errors.As(err, &stop) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f.log.Warn(what+" failed; trying again", "cluster", f.options.Config.Host, "error", err)
		if !sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// discoverOften keeps a stream for each resource, until ctx ends.
func (f *Follower) discoverOften(ctx context.Context, from *starts) {
	for ctx.Err() == nil {
		if err := f.discover(ctx, from); err != nil && ctx.Err() == nil {
			f.log.Warn("looking for resources failed; trying again", "cluster", f.options.Config.Host, "error", err)
			if !sleep(ctx, retryFirst) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(rediscovery):
		case <-f.rediscover:
			sleep(ctx, settling)
		}
	}
}

// discover starts streams of resources that are new, and ends those of resources that are gone.
func (f *Follower) discover(ctx context.Context, from *starts) error {
	found, unknown, err := f.cluster.Discover()
	if err != nil {
		return err
	}
	served := map[string]bool{}
	// What others are in comes before them.
	slices.SortStableFunc(found, func(a, b kubecopy.Resource) int { return cmp.Compare(a.Depth(), b.Depth()) })
	for _, r := range found {
		if !r.Watched || !f.cluster.Stores(r) {
			continue
		}
		for _, namespace := range f.cluster.Scopes(r) {
			name := r.In(namespace)
			served[name] = true
			old := f.streams[name]
			if old != nil && old.resource.GroupVersionResource == r.GroupVersionResource {
				continue
			}
			var s *stream
			if old != nil { // in another version now
				old.stop()
				<-old.ended
				s = old.in(r)
			} else {
				s = newStream(f, r, namespace, from.take(name, r, namespace))
			}
			f.streams[name] = s
			s.start(ctx)
			if r.Depth() == 0 {
				select {
				case <-s.tried:
				case <-ctx.Done():
				}
			}
		}
	}
	for name, s := range f.streams {
		if !served[name] && !isUnknown(unknown, s.resource.GroupVersion()) {
			s.stop()
			<-s.ended
			delete(f.streams, name)
			f.send(ctx, event{stream: s, kind: gone})
		}
	}
	return nil
}

func isUnknown(unknown []kubecopy.Unread, version schema.GroupVersion) bool {
	for _, u := range unknown {
		if u.Resource == version.String() {
			return true
		}
	}
	return false
}

// changed has it looked which resources there are.
func (f *Follower) changed() {
	select {
	case f.rediscover <- struct{}{}:
	default:
	}
}

// send passes an event to the writer, or returns the error of ctx.
func (f *Follower) send(ctx context.Context, e event) error {
	select {
	case f.events <- e:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("following ended: %w", context.Cause(ctx))
	}
}
