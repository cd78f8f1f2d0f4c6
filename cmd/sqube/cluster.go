package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/json" // keeps all digits of integers
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
)

// cluster is what commands reach through the API, with the rights of a kubeconfig.
type cluster struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides

	loader clientcmd.ClientConfig
	config *rest.Config
	client rest.Interface // of the API of changes, and of any path
	mapper meta.RESTMapper
	hidden map[schema.GroupVersionKind]*changes.Hidden // what is secret in custom resources
}

// addFlags adds kubectl's flags, but for --user, which the commands use for the author of changes.
func (c *cluster) addFlags(fs *pflag.FlagSet) {
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.AuthInfoName.LongName, names.ContextOverrideFlags.Namespace.LongName = "", ""
	names.AuthOverrideFlags.Username.LongName, names.AuthOverrideFlags.Password.LongName = "", ""
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	for name, description := range map[*clientcmd.FlagInfo]string{
		&names.CurrentContext:                             "Context of the kubeconfig.",
		&names.Timeout:                                    "How long to wait for an answer, such as 30s; 0 for as long as it takes.",
		&names.ContextOverrideFlags.ClusterName:           "Cluster of the kubeconfig.",
		&names.AuthOverrideFlags.ClientCertificate:        "File with a client certificate.",
		&names.AuthOverrideFlags.ClientKey:                "File with the key of the client certificate.",
		&names.AuthOverrideFlags.Token:                    "Bearer token.",
		&names.AuthOverrideFlags.Impersonate:              "User to impersonate.",
		&names.AuthOverrideFlags.ImpersonateUID:           "UID to impersonate.",
		&names.AuthOverrideFlags.ImpersonateGroups:        "Group to impersonate; can be repeated.",
		&names.ClusterOverrideFlags.APIServer:             "URL of the server.",
		&names.ClusterOverrideFlags.CertificateAuthority:  "File with the certificates of the server's authority.",
		&names.ClusterOverrideFlags.InsecureSkipTLSVerify: "Don't check the server's certificate.",
		&names.ClusterOverrideFlags.TLSServerName:         "Name that the server's certificate must have.",
		&names.ClusterOverrideFlags.ProxyURL:              "URL of a proxy.",
		&names.ClusterOverrideFlags.DisableCompression:    "Ask for answers without compression.",
	} {
		name.Description = description
	}
	fs.StringVar(&c.kubeconfig, "kubeconfig", "", "Kubeconfig file. If unset, that of kubectl: $KUBECONFIG or ~/.kube/config.")
	clientcmd.BindOverrideFlags(&c.overrides, fs, names)
}

// load reads the kubeconfig.
func (c *cluster) load() (err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	c.loader = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides)
	config, err := c.loader.ClientConfig()
	if err != nil {
		return terminal.OneLine(err)
	}
	return c.use(config)
}

// use makes the clients of a configuration.
func (c *cluster) use(config *rest.Config) (err error) {
	c.config = config
	c.config.QPS = -1 // the server has limits of its own
	own := rest.CopyConfig(c.config)
	own.GroupVersion, own.APIPath = &changes.GroupVersion, "/apis"
	own.NegotiatedSerializer = serializer.NewCodecFactory(changes.Scheme).WithoutConversion()
	if c.client, err = rest.RESTClientFor(own); err != nil {
		return err
	}
	discovery, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return err
	}
	cached := memory.NewMemCacheClient(discovery)
	c.mapper = restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	return nil
}

// object returns the resource, the namespace and the name of the object that arguments name as for kubectl. Its resource need not exist any
// more. The namespace is the given one, or else that of the context, and "" if the resource has none.
func (c *cluster) object(args []string, namespace string) (resource schema.GroupResource, in, name string, err error) {
	text, name, err := resourceAndName(args)
	if err != nil {
		return resource, "", "", err
	}
	mapping, err := c.mapping(text)
	if meta.IsNoMatchError(err) {
		return schema.ParseGroupResource(strings.ToLower(text)), namespace, name, nil
	}
	if err != nil {
		return resource, "", "", terminal.OneLine(err)
	}
	switch {
	case mapping.Scope.Name() == meta.RESTScopeNameRoot:
		namespace = ""
	case namespace == "":
		namespace, _, err = c.loader.Namespace()
	}
	return mapping.Resource.GroupResource(), namespace, name, err
}

// mapping returns the resource that a text names as for kubectl.
func (c *cluster) mapping(text string) (*meta.RESTMapping, error) {
	kind, err := c.mapper.KindFor(schema.ParseGroupResource(strings.ToLower(text)).WithVersion(""))
	if err != nil {
		return nil, err
	}
	return c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

// servedIn returns a resource in a version if that is served, or else in the preferred one.
func servedIn(mapper meta.RESTMapper, resource schema.GroupResource, version string) (schema.GroupVersionResource, error) {
	served, err := mapper.ResourceFor(resource.WithVersion(version))
	if meta.IsNoMatchError(err) {
		served, err = mapper.ResourceFor(resource.WithVersion(""))
	}
	return served, err
}

// get returns an object as it was at a revision, 0 for now, in a version of the API if that is served, or else in the preferred one. It is
// nil if there was none.
func (c *cluster) get(ctx context.Context, resource schema.GroupResource, version, namespace, name string, revision int64) (map[string]any, error) {
	served, err := servedIn(c.mapper, resource, version)
	if err != nil {
		return nil, err
	}
	text, err := answer(c.read(served, namespace, revision).Name(name).SetHeader("Accept", asJSON).Do(ctx))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	var object map[string]any
	return object, json.Unmarshal(text, &object)
}

// read begins a request for objects as they were at a revision, 0 for now.
func (c *cluster) read(resource schema.GroupVersionResource, namespace string, revision int64) *rest.Request {
	request := at(c.client.Get(), resource, namespace)
	if revision != 0 {
		request = request.Param("resourceVersion", fmt.Sprint(revision)).Param("resourceVersionMatch", "Exact")
	}
	return request
}

// at leads a request to the objects of a resource.
func at(request *rest.Request, resource schema.GroupVersionResource, namespace string) *rest.Request {
	path := []string{"/apis", resource.Group, resource.Version}
	if resource.Group == "" {
		path = []string{"/api", resource.Version}
	}
	return request.AbsPath(path...).NamespaceIfScoped(namespace, namespace != "").Resource(resource.Resource)
}

// revisionAt returns the revision that the text of a flag names, 0 for now: a revision, a time, or how long ago. A time is looked up
// in the changes of a namespace, or of all.
func (c *cluster) revisionAt(ctx context.Context, flag, text, namespace string) (int64, error) {
	if text == "" || text == "now" {
		return 0, nil
	}
	if revision, err := strconv.ParseInt(text, 10, 64); err == nil && revision > 0 {
		return revision, nil
	}
	if _, err := ago(flag, text, time.Now()); err != nil {
		return 0, err
	}
	log := &changeLog{cluster: c, namespace: namespace, terms: []fields.Selector{equals("until", text), equals("order", "newest")}, limit: 1}
	at, err := log.pages(ctx, asJSON, func([]byte) error { return errEnough })
	if !errors.Is(err, errEnough) {
		return 0, err
	}
	revision, err := strconv.ParseInt(at, 10, 64)
	if err == nil && revision == 0 {
		err = fmt.Errorf("%s %s: history does not reach back so far", flag, text)
	}
	return revision, err
}
