package kubecopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/etcdimport"
)

// Options select what is read.
type Options struct {
	// Secrets keeps the values of Secrets. Otherwise they are replaced by as many letters x, and never stored.
	Secrets bool
	// SecretTypes are those whose values are kept nevertheless.
	SecretTypes []corev1.SecretType
	// Namespaces limits objects with a namespace to these; none for all.
	Namespaces []string
	// Without leaves out resources, such as events or leases.coordination.k8s.io.
	Without []string
	// Progress is called with the number of objects that were read so far. Optional.
	Progress func(objects int)
	// UserAgent is that of the requests.
	UserAgent string
	// Importer makes the writes; nil for one of all built-in resources, without encryption.
	Importer *etcdimport.Importer
}

// Row is an object that was read.
type Row struct {
	etcdimport.Result
	// Revision is the object's resourceVersion, or one after Cluster.Revision if that is not a number, or another object's.
	Revision int64
}

// Object is an object as it is at a resourceVersion.
type Object struct {
	etcdimport.Result
	// ResourceVersion is 0 if it is not a number.
	ResourceVersion int64
}

// Cluster is a cluster to be read.
type Cluster struct {
	options   Options
	client    rest.Interface
	watching  rest.Interface // without a time limit
	discovery discovery.DiscoveryInterface
	resources []Resource

	mu       sync.Mutex // held while importer converts
	importer *etcdimport.Importer
	// Revision is the moment as of which everything is read, except what Unaligned names.
	Revision int64
	// Unaligned has the resources that could only be read as they were a little later, with the reason.
	Unaligned []Unread
	// Unread has the resources that could not be read at all.
	Unread []Unread

	read int
	ids  etcdimport.RowIDs
}

// Unread is a resource, and why it was not read as the others.
type Unread struct{ Resource, Reason string }

// Resource is one that is listed.
type Resource struct {
	schema.GroupVersionResource
	// Watched is set if it can be watched.
	Watched    bool
	kind       string
	namespaced bool
}

const (
	// pageSize is that of client-go's pagers.
	pageSize = 500
	// patience limits a page.
	patience = time.Minute
)

// Open finds out what a cluster has.
func Open(ctx context.Context, config *rest.Config, options Options) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = options.UserAgent
	config.QPS = -1 // one request at a time; 429 is heeded
	config.Timeout = patience
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.GroupVersion = &schema.GroupVersion{}
	config.WarningHandler = rest.NoWarnings{}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	c := &Cluster{options: options, client: client}
	if c.watching, err = watchClient(config); err != nil {
		return nil, err
	}
	if c.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, err
	}
	if c.importer = options.Importer; c.importer == nil {
		none, err := encryption.Load(encryption.Options{}, "")
		if err != nil {
			return nil, err
		}
		if c.importer, err = etcdimport.New("/", none); err != nil {
			return nil, err
		}
	}
	if c.resources, c.Unread, err = c.Discover(); err != nil {
		return nil, err
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	c.ids = etcdimport.NewRowIDs(c.Revision)
	return c, nil
}

// Prefix begins the name of a cluster where a backup can be named: kube:CONTEXT, or kube: for the current context of a kubeconfig.
const Prefix = "kube:"

// Config returns the configuration that kubectl has in a context, "" for the current one.
func Config(context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
}

// Discover finds the resources to list, in an order in which definitions come before their objects. unknown has the versions of groups that
// could not be looked up.
func (c *Cluster) Discover() (found []Resource, unknown []Unread, err error) {
	lists, err := c.discovery.ServerPreferredResources()
	var partly *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partly) {
		return nil, nil, err
	}
	if partly != nil {
		for version, err := range partly.Groups {
			unknown = append(unknown, Unread{version.String(), err.Error()})
		}
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range list.APIResources {
			one := Resource{version.WithResource(r.Name), slices.Contains(r.Verbs, "watch"), r.Kind, r.Namespaced}
			if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") && !c.without(one.GroupResource()) {
				found = append(found, one)
			}
		}
	}
	slices.SortFunc(found, func(a, b Resource) int {
		if a, b := a.defines(), b.defines(); a != b {
			if a {
				return -1
			}
			return 1
		}
		return strings.Compare(a.String(), b.String())
	})
	return found, unknown, nil
}

// without reports whether a resource is not to be read.
func (c *Cluster) without(name schema.GroupResource) bool {
	return alias[name] || slices.Contains(c.options.Without, name.String()) || slices.Contains(c.options.Without, name.Resource)
}

// alias are resources that show the objects of others, or state that is not stored.
var alias = map[schema.GroupResource]bool{
	{Group: "events.k8s.io", Resource: "events"}: true, // of the core group
	{Resource: "componentstatuses"}:              true,
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

var addresses = schema.GroupResource{Group: networkingv1.GroupName, Resource: "ipaddresses"}

var definitions = schema.GroupResource{Group: apiextensions.GroupName, Resource: "customresourcedefinitions"}

func (r *Resource) defines() bool { return r.GroupResource() == definitions }

// begin determines the moment as of which everything is read: the newest revision, which any list has that the user may read.
func (c *Cluster) begin(ctx context.Context) error {
	first := errors.New("there is nothing to list")
	for i, r := range append([]Resource{{GroupVersionResource: namespaces, kind: "Namespace"}}, c.resources...) {
		for _, namespace := range c.Scopes(r) {
			page, err := c.page(ctx, r.path(namespace), map[string]string{"limit": "1"})
			if err == nil {
				if c.Revision, err = strconv.ParseInt(page.resourceVersion, 10, 64); err != nil {
					err = fmt.Errorf("its resourceVersions are no numbers: %q", page.resourceVersion)
				}
				return err
			}
			if i == 0 {
				first = err
			}
			if !apierrors.IsForbidden(err) {
				return err
			}
		}
	}
	return first
}

// Scopes returns the namespaces in which a resource is listed, "" for all.
func (c *Cluster) Scopes(r Resource) []string {
	if !r.namespaced || len(c.options.Namespaces) == 0 {
		return []string{""}
	}
	return c.options.Namespaces
}

// path returns the path of a list.
func (r *Resource) path(namespace string) string {
	path := "/apis/" + r.GroupVersion().String()
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + r.Resource
}

// Each calls yield for each object. It returns an error of yield, which ends it, unchanged.
func (c *Cluster) Each(ctx context.Context, yield func(*Row) error) error {
	for _, r := range c.resources {
		if !c.Stores(r) {
			c.Unread = append(c.Unread, Unread{r.GroupResource().String(), "sqube does not store it: an aggregated API serves it, or another version of Kubernetes"})
			continue
		}
		for _, namespace := range c.Scopes(r) {
			if err := c.list(ctx, r, namespace, yield); err != nil {
				return err
			}
		}
	}
	return nil
}

// Stores reports whether objects of a resource can be stored. For a custom resource, its definition must have been read before.
func (c *Cluster) Stores(r Resource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.importer.Serves(r.GroupResource())
}

// list passes on the objects of a resource. What the user may not read is noted, and does not end the copy.
func (c *Cluster) list(ctx context.Context, r Resource, namespace string, yield func(*Row) error) error {
	exact := map[string]string{"resourceVersion": fmt.Sprint(c.Revision), "resourceVersionMatch": string(metav1.ResourceVersionMatchExact)}
	row := func(o *Object) error {
		revision := o.ResourceVersion
		if revision == 0 {
			revision = c.Revision
		}
		return yield(&Row{o.Result, c.ids.Of(revision)})
	}
	_, passed, err := c.pages(ctx, r, namespace, exact, nil, row)
	var failure *readError
	if errors.As(err, &failure) && retriable(failure.error) {
		c.Unaligned = append(c.Unaligned, Unread{r.In(namespace), failure.Error()})
		_, _, err = c.pages(ctx, r, namespace, nil, passed, row)
	}
	if errors.As(err, &failure) && ctx.Err() == nil && Unreadable(failure.error) {
		c.Unread = append(c.Unread, Unread{r.In(namespace), failure.Error()})
		return nil
	}
	return err
}

// Unreadable reports whether an error says that the user may not read a resource, or that the cluster does not have it.
func Unreadable(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// In names a resource in a namespace, "" for all.
func (r *Resource) In(namespace string) string {
	if namespace == "" {
		return r.GroupResource().String()
	}
	return r.GroupResource().String() + " in " + namespace
}

// retriable reports whether a list that failed at a resourceVersion can succeed without it: the server does not have it any more, not yet, or
// takes it from another etcd.
func retriable(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err) || apierrors.IsBadRequest(err) || apierrors.IsInvalid(err)
}

// readError is an error of a request.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// pages passes on the objects of a list, except those whose names are in skip. It returns the resourceVersion of the list, and the names of
// those that it has passed on.
func (c *Cluster) pages(ctx context.Context, r Resource, namespace string, at map[string]string, skip map[string]bool, yield func(*Object) error) (version string, passed map[string]bool, err error) {
	parameters := map[string]string{"limit": fmt.Sprint(pageSize)}
	for name, value := range at {
		parameters[name] = value
	}
	passed = map[string]bool{}
	for {
		page, err := c.page(ctx, r.path(namespace), parameters)
		if err != nil {
			return version, passed, &readError{err}
		}
		version = page.resourceVersion
		for _, o := range page.objects {
			name := o.namespace + "/" + o.name
			if skip[name] || passed[name] {
				continue
			}
			passed[name] = true
			converted, err := c.convert(ctx, r, &o)
			if err == nil && converted != nil {
				c.progressed()
				err = yield(converted)
			}
			if err != nil {
				return version, passed, err
			}
		}
		if page.next == "" {
			return version, passed, nil
		}
		parameters = map[string]string{"limit": fmt.Sprint(pageSize), "continue": page.next}
	}
}

func (c *Cluster) progressed() {
	c.read++
	if c.options.Progress != nil {
		c.options.Progress(c.read)
	}
}

// leftOut reports whether an object belongs to a namespace that was not asked for, though it has none.
func (c *Cluster) leftOut(r Resource, o *object) (bool, error) {
	belongs := ""
	switch r.GroupResource() {
	case namespaces.GroupResource():
		belongs = o.name
	case addresses:
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(o.data(r.GroupVersion().String(), r.kind), nil, nil)
		if err != nil {
			return false, err
		}
		if address, ok := decoded.(*networkingv1.IPAddress); ok && address.Spec.ParentRef != nil {
			belongs = address.Spec.ParentRef.Namespace
		}
	}
	return belongs != "" && len(c.options.Namespaces) > 0 && !slices.Contains(c.options.Namespaces, belongs), nil
}

// convert returns an object in the form in which it is stored, nil if it is not to be read.
func (c *Cluster) convert(ctx context.Context, r Resource, o *object) (*Object, error) {
	if out, err := c.leftOut(r, o); out || err != nil {
		return nil, err
	}
	data := o.data(r.GroupVersion().String(), r.kind)
	if r.GroupResource() == (schema.GroupResource{Resource: "secrets"}) && !c.options.Secrets {
		var err error
		if data, err = withoutValues(data, c.options.SecretTypes); err != nil {
			return nil, fmt.Errorf("hiding the values of Secret %s/%s: %w", o.namespace, o.name, err)
		}
	}
	version, err := strconv.ParseInt(o.resourceVersion, 10, 64)
	if err != nil {
		version = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	result, err := c.importer.ImportObject(ctx, r.GroupResource(), cache.NewObjectName(o.namespace, o.name).String(), data)
	return &Object{result, version}, err
}

// accepted are the media types of objects.
const accepted = "application/vnd.kubernetes.protobuf,application/json"

// page reads one page of a list.
func (c *Cluster) page(ctx context.Context, path string, parameters map[string]string) (*page, error) {
	request := c.client.Get().AbsPath(path).SetHeader("Accept", accepted)
	for name, value := range parameters {
		request.Param(name, value)
	}
	result := request.Do(ctx)
	var kind string
	result.ContentType(&kind)
	body, err := result.Raw()
	if err != nil {
		if status := result.Error(); status != nil {
			err = status
		}
		return nil, err
	}
	return parse(kind, body)
}
