package kubecopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
}

// Row is an object that was read.
type Row struct {
	etcdimport.Result
	// Revision is the object's resourceVersion, or one after Cluster.Revision if that is not a number, or another object's.
	Revision int64
}

// Cluster is a cluster to be read.
type Cluster struct {
	options   Options
	client    rest.Interface
	importer  *etcdimport.Importer
	resources []resource
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

// resource is one that is listed.
type resource struct {
	schema.GroupVersionResource
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
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	none, err := encryption.Load(encryption.Options{}, "")
	if err != nil {
		return nil, err
	}
	c := &Cluster{options: options, client: client}
	if c.importer, err = etcdimport.New("/", none); err != nil {
		return nil, err
	}
	if err := c.discover(found); err != nil {
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

// discover finds the resources to list, in an order in which definitions come before their objects.
func (c *Cluster) discover(client discovery.DiscoveryInterface) error {
	lists, err := client.ServerPreferredResources()
	var partly *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partly) {
		return err
	}
	if partly != nil {
		for version, err := range partly.Groups {
			c.Unread = append(c.Unread, Unread{version.String(), err.Error()})
		}
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") {
				continue
			}
			found := resource{version.WithResource(r.Name), r.Kind, r.Namespaced}
			if name := found.GroupResource().String(); slices.Contains(c.options.Without, name) || slices.Contains(c.options.Without, r.Name) || alias[found.GroupResource()] {
				continue
			}
			c.resources = append(c.resources, found)
		}
	}
	slices.SortFunc(c.resources, func(a, b resource) int {
		if a, b := a.defines(), b.defines(); a != b {
			if a {
				return -1
			}
			return 1
		}
		return strings.Compare(a.String(), b.String())
	})
	return nil
}

// alias are resources that show the objects of others, or state that is not stored.
var alias = map[schema.GroupResource]bool{
	{Group: "events.k8s.io", Resource: "events"}: true, // of the core group
	{Resource: "componentstatuses"}:              true,
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

var addresses = schema.GroupResource{Group: networkingv1.GroupName, Resource: "ipaddresses"}

var definitions = schema.GroupResource{Group: apiextensions.GroupName, Resource: "customresourcedefinitions"}

func (r *resource) defines() bool { return r.GroupResource() == definitions }

// begin determines the moment as of which everything is read: the newest revision, which any list has that the user may read.
func (c *Cluster) begin(ctx context.Context) error {
	first := errors.New("there is nothing to list")
	for i, r := range append([]resource{{namespaces, "Namespace", false}}, c.resources...) {
		for _, namespace := range c.scopes(r) {
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

// scopes returns the namespaces in which a resource is listed, "" for all.
func (c *Cluster) scopes(r resource) []string {
	if !r.namespaced || len(c.options.Namespaces) == 0 {
		return []string{""}
	}
	return c.options.Namespaces
}

// path returns the path of a list.
func (r *resource) path(namespace string) string {
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
		if !c.importer.Serves(r.GroupResource()) {
			c.Unread = append(c.Unread, Unread{r.GroupResource().String(), "sqube does not store it: an aggregated API serves it, or another version of Kubernetes"})
			continue
		}
		for _, namespace := range c.scopes(r) {
			if err := c.list(ctx, r, namespace, yield); err != nil {
				return err
			}
		}
	}
	return nil
}

// list passes on the objects of a resource. What the user may not read is noted, and does not end the copy.
func (c *Cluster) list(ctx context.Context, r resource, namespace string, yield func(*Row) error) error {
	exact := map[string]string{"resourceVersion": fmt.Sprint(c.Revision), "resourceVersionMatch": string(metav1.ResourceVersionMatchExact)}
	passed, err := c.pages(ctx, r, namespace, exact, nil, yield)
	var failure *readError
	if errors.As(err, &failure) && retriable(failure.error) {
		c.Unaligned = append(c.Unaligned, Unread{r.in(namespace), failure.Error()})
		_, err = c.pages(ctx, r, namespace, nil, passed, yield)
	}
	if errors.As(err, &failure) && ctx.Err() == nil && (apierrors.IsForbidden(failure.error) || apierrors.IsNotFound(failure.error) || apierrors.IsMethodNotSupported(failure.error)) {
		c.Unread = append(c.Unread, Unread{r.in(namespace), failure.Error()})
		return nil
	}
	return err
}

func (r *resource) in(namespace string) string {
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

// pages passes on the objects of a list, except those whose names are in skip, and returns the names of those that it has passed on.
func (c *Cluster) pages(ctx context.Context, r resource, namespace string, at map[string]string, skip map[string]bool, yield func(*Row) error) (passed map[string]bool, err error) {
	parameters := map[string]string{"limit": fmt.Sprint(pageSize)}
	for name, value := range at {
		parameters[name] = value
	}
	passed = map[string]bool{}
	for {
		page, err := c.page(ctx, r.path(namespace), parameters)
		if err != nil {
			return passed, &readError{err}
		}
		for _, o := range page.objects {
			name := o.namespace + "/" + o.name
			if skip[name] || passed[name] {
				continue
			}
			passed[name] = true
			out, err := c.leftOut(r, &o)
			if err == nil && !out {
				err = c.pass(ctx, r, &o, yield)
			}
			if err != nil {
				return passed, err
			}
		}
		if page.next == "" {
			return passed, nil
		}
		parameters = map[string]string{"limit": fmt.Sprint(pageSize), "continue": page.next}
	}
}

// leftOut reports whether an object belongs to a namespace that was not asked for, though it has none.
func (c *Cluster) leftOut(r resource, o *object) (bool, error) {
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

func (c *Cluster) pass(ctx context.Context, r resource, o *object, yield func(*Row) error) error {
	c.read++
	if c.options.Progress != nil {
		c.options.Progress(c.read)
	}
	data := o.data(r.GroupVersion().String(), r.kind)
	if r.GroupResource() == (schema.GroupResource{Resource: "secrets"}) && !c.options.Secrets {
		var err error
		if data, err = withoutValues(data, c.options.SecretTypes); err != nil {
			return fmt.Errorf("hiding the values of Secret %s/%s: %w", o.namespace, o.name, err)
		}
	}
	revision, err := strconv.ParseInt(o.resourceVersion, 10, 64)
	if err != nil {
		revision = c.Revision
	}
	result, err := c.importer.ImportObject(ctx, r.GroupResource(), cache.NewObjectName(o.namespace, o.name).String(), data)
	if err != nil {
		return err
	}
	return yield(&Row{result, c.ids.Of(revision)})
}

// page reads one page of a list.
func (c *Cluster) page(ctx context.Context, path string, parameters map[string]string) (*page, error) {
	request := c.client.Get().AbsPath(path).SetHeader("Accept", "application/vnd.kubernetes.protobuf,application/json")
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
