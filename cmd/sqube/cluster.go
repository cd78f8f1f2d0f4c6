package main

import (
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
)

// cluster is what commands reach through the API, with the rights of a kubeconfig.
type cluster struct {
	kubeconfig, context string

	loader clientcmd.ClientConfig
	config *rest.Config
}

func (c *cluster) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.kubeconfig, "kubeconfig", "", "Kubeconfig file. If unset, that of kubectl: $KUBECONFIG or ~/.kube/config.")
	fs.StringVar(&c.context, "context", "", "Context of the kubeconfig.")
}

// load reads the kubeconfig.
func (c *cluster) load() (err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	c.loader = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context})
	if c.config, err = c.loader.ClientConfig(); err != nil {
		return terminal.OneLine(err)
	}
	return nil
}

// object returns the resource, the namespace and the name of the object that arguments name as for kubectl. Its resource need not exist any
// more. The namespace is the given one, or else that of the context, and "" if the resource has none.
func (c *cluster) object(args []string, namespace string) (resource schema.GroupResource, in, name string, err error) {
	text, name, err := resourceAndName(args)
	if err != nil {
		return resource, "", "", err
	}
	client, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return resource, "", "", err
	}
	cached := memory.NewMemCacheClient(client)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	resource = schema.ParseGroupResource(strings.ToLower(text))
	kind, err := mapper.KindFor(resource.WithVersion(""))
	if meta.IsNoMatchError(err) {
		return resource, namespace, name, nil
	}
	if err != nil {
		return resource, "", "", terminal.OneLine(err)
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
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
