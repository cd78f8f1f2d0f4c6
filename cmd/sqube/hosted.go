package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/fleet"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

func hostedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "List, make, fork, move and remove clusters that a server hosts",
		Long: `List, make, fork, move and remove the clusters that a server hosts: one that was started
with --clusters. The commands use the API of the host, which a kubeconfig or its context
names, so they do what you may do there. Clusters are objects, so kubectl get clusters,
kubectl apply and kubectl explain cluster work, too.`,
		Example: `  sqube cluster create dev --ttl 8h
  sqube cluster kubeconfig dev --merge
  sqube cluster fork dev try-it
  sqube cluster state try-it
  sqube cluster delete try-it`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(
		hostedListCommand(), hostedCreateCommand(), hostedForkCommand(), hostedActCommand("sleep"), hostedActCommand("wake"), hostedStateCommand(),
		hostedKubeconfigCommand(), hostedCredentialsCommand(), hostedClaimCommand(), hostedReleaseCommand(), hostedExportCommand(), hostedImportCommand(), hostedMoveCommand(), hostedDeleteCommand(), hostedUndeleteCommand(),
	)
	return cmd
}

const (
	clustersResource = "clusters"
	poolsResource    = "clusterpools"
)

// host is a server that hosts clusters.
type host struct {
	cluster
	namespace string
	output    string

	fleet *rest.RESTClient
}

// addFlags adds the flags for the server and the namespace, and --output with the forms that are given, if there are any.
func (h *host) addFlags(cmd *cobra.Command, forms ...string) {
	fs := cmd.Flags()
	h.cluster.addFlags(fs)
	fs.StringVarP(&h.namespace, "namespace", "n", "", "Namespace of the cluster in the host. If unset, the context's.")
	if len(forms) == 0 {
		return
	}
	fs.StringVarP(&h.output, "output", "o", "", "Print in another form: "+strings.Join(forms, ", ")+".")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if h.output != "" && !slices.Contains(forms, h.output) {
			return fmt.Errorf("--output must be one of %s, not %q", strings.Join(forms, ", "), h.output)
		}
		return nil
	}
}

// objectForms are the forms in which objects are printed.
var objectForms = []string{"json", "yaml", "name"}

// load reads the kubeconfig and finds the namespace.
func (h *host) load() (err error) {
	if err := h.cluster.load(); err != nil {
		return err
	}
	return h.useNamespace()
}

func (h *host) useNamespace() (err error) {
	if h.namespace == "" {
		if h.namespace, _, err = h.loader.Namespace(); err != nil {
			return terminal.OneLine(err)
		}
	}
	config := rest.CopyConfig(h.config)
	config.GroupVersion, config.APIPath = &v1alpha1.GroupVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(fleet.Scheme).WithoutConversion()
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	h.fleet, err = rest.RESTClientFor(config)
	return err
}

// in leads a request to a cluster, or to all of the namespace if the name is "".
func (h *host) in(r *rest.Request, name string) *rest.Request {
	r = r.Namespace(h.namespace).Resource(clustersResource)
	if name != "" {
		r = r.Name(name)
	}
	return r
}

func (h *host) get(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	o := &v1alpha1.Cluster{}
	err := h.in(h.fleet.Get(), name).Do(ctx).Into(o)
	return o, h.explain(err)
}

// explain makes one line of an error of the API.
func (h *host) explain(err error) error {
	if err == nil {
		return nil
	}
	if strings.Contains(err.Error(), "the server could not find the requested resource") {
		return fmt.Errorf("%s hosts no clusters: start sqube serve with --clusters, or choose another --context", h.config.Host)
	}
	return terminal.OneLine(err)
}

// print prints a cluster in the form of --output, or what was done with it.
func (h *host) print(out io.Writer, o *v1alpha1.Cluster, done string) error {
	o.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster"}
	name := "cluster." + v1alpha1.GroupVersion.Group + "/" + o.Name
	if h.output == "name" {
		_, err := fmt.Fprintln(out, name)
		return err
	}
	if h.output == "" {
		_, err := fmt.Fprintln(out, name, done)
		return err
	}
	return h.printObject(out, o)
}

// printObject prints a value as JSON or YAML.
func (h *host) printObject(out io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	items, _ := object["items"].([]any)
	for _, one := range append(items, object) { // as kubectl does
		unstructured.RemoveNestedField(one.(map[string]any), "metadata", "managedFields")
	}
	form := terminal.YAML
	if h.output == "json" {
		form = func(object map[string]any) ([]byte, error) { return terminal.JSON(object) }
	}
	if text, err = form(object); err == nil {
		_, err = out.Write(text)
	}
	return err
}

// waitInterval is how often a command looks whether what it waits for has happened.
const waitInterval = 50 * time.Millisecond

// await returns the cluster once it can be used. It shows progress on the screen of cmd.
func (h *host) await(cmd *cobra.Command, name string) (o *v1alpha1.Cluster, err error) {
	began := time.Now()
	var why atomic.Value
	why.Store("")
	defer progress(cmd, func() string {
		return fmt.Sprintf("cluster %s: being created for %s %s", name, time.Since(began).Round(time.Second), why.Load())
	})()
	for {
		if o, err = h.get(cmd.Context(), name); err != nil {
			return nil, err
		}
		why.Store(o.Status.Message)
		switch o.Status.Phase {
		case v1alpha1.PhaseFailed:
			return nil, fmt.Errorf("cluster %s: %s", name, o.Status.Message)
		case "", v1alpha1.PhaseCreating:
		default:
			return o, nil
		}
		select {
		case <-cmd.Context().Done():
			return nil, cmd.Context().Err()
		case <-time.After(waitInterval):
		}
	}
}

// each calls do for each name, and goes on after errors.
func each(names []string, do func(name string) error) error {
	var failed []error
	for _, name := range names {
		failed = append(failed, do(name))
	}
	return errors.Join(failed...)
}

// clusterNames refuses to go without a name of a cluster.
func clusterNames(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want the name of a cluster, or several (see %s --help)", cmd.CommandPath())
	}
	return nil
}

func hostedListCommand() *cobra.Command {
	var h host
	var all bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List clusters with their phase, size and last request",
		Example: "  sqube cluster list -A",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := h.load(); err != nil {
				return err
			}
			if all {
				h.namespace = ""
			}
			return h.list(cmd)
		},
	}
	h.addFlags(cmd, append([]string{"wide"}, objectForms...)...)
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "The clusters in all namespaces.")
	return cmd
}

func (h *host) list(cmd *cobra.Command) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	request := h.fleet.Get().NamespaceIfScoped(h.namespace, h.namespace != "").Resource(clustersResource)
	if h.output == "" || h.output == "wide" {
		text, err := answer(request.SetHeader("Accept", asTable).Do(ctx))
		if err != nil {
			return h.explain(err)
		}
		return h.printTable(cmd, text)
	}
	list := &v1alpha1.ClusterList{}
	if err := request.Do(ctx).Into(list); err != nil {
		return h.explain(err)
	}
	list.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ClusterList"}
	if h.output != "name" {
		return h.printObject(out, list)
	}
	for i := range list.Items {
		if err := h.print(out, &list.Items[i], ""); err != nil {
			return err
		}
	}
	return nil
}

// printTable prints a Table of the API.
func (h *host) printTable(cmd *cobra.Command, text []byte) error {
	var t metav1.Table
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "No clusters found.")
		return err
	}
	row := func(namespace string, cell func(i int) string) (cells []string) {
		if h.namespace == "" {
			cells = append(cells, namespace)
		}
		for i, column := range t.ColumnDefinitions {
			if column.Priority == 0 || h.output == "wide" {
				cells = append(cells, cell(i))
			}
		}
		return cells
	}
	printed := newTable(cmd.OutOrStdout(), row("NAMESPACE", func(i int) string { return strings.ToUpper(t.ColumnDefinitions[i].Name) })...)
	for _, r := range t.Rows {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.Object.Raw, &o); err != nil {
			return err
		}
		printed.row(row(o.Namespace, func(i int) string {
			if r.Cells[i] == nil {
				return ""
			}
			return fmt.Sprint(r.Cells[i])
		})...)
	}
	return printed.end()
}

// hostedActCommand is sleep or wake.
func hostedActCommand(verb string) *cobra.Command {
	var h host
	var all, everywhere bool
	done := map[string]string{"sleep": "sleeps", "wake": "is awake"}[verb]
	cmd := &cobra.Command{
		Use:     verb + " NAME...",
		Example: "  sqube cluster " + verb + " dev\n  sqube cluster " + verb + " --all -n team\n  sqube cluster " + verb + " -A",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := h.load(); err != nil {
				return err
			}
			if !all && !everywhere {
				return each(names, func(name string) error { return h.act(cmd, verb, name, done) })
			}
			return h.actOnAll(cmd, verb, everywhere, done)
		},
		Args: func(cmd *cobra.Command, args []string) error {
			if all || everywhere {
				return noArguments(cmd, args)
			}
			return clusterNames(cmd, args)
		},
	}
	if verb == "sleep" {
		cmd.Short = "Put clusters to sleep"
		cmd.Long = `Put clusters to sleep: what runs in them ends as at a server's restart, and they take no
memory and no processor. The next request wakes them.`
	} else {
		cmd.Short = "Wake clusters up"
		cmd.Long = `Wake clusters up, before the first request does. They fall asleep again when nobody has
asked for a while. A database that an older sqube has left is brought up to date then:
with -A, those of all clusters.`
	}
	h.addFlags(cmd, objectForms...)
	cmd.Flags().BoolVar(&all, "all", false, "All clusters of the namespace, one after the other.")
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "All clusters of the host, one after the other.")
	return cmd
}

// act puts a cluster to sleep or wakes it.
func (h *host) act(cmd *cobra.Command, verb, name, done string) error {
	defer progress(cmd, func() string { return verb + " " + name })()
	o := &v1alpha1.Cluster{}
	if err := h.in(h.fleet.Post(), name).SubResource(verb).Do(cmd.Context()).Into(o); err != nil {
		return h.explain(err)
	}
	return h.print(cmd.OutOrStdout(), o, done)
}

// actOnAll does it with the clusters of the namespace, or of all, and goes on after errors.
func (h *host) actOnAll(cmd *cobra.Command, verb string, everywhere bool, done string) error {
	list := &v1alpha1.ClusterList{}
	if err := h.fleet.Get().NamespaceIfScoped(h.namespace, !everywhere).Resource(clustersResource).Do(cmd.Context()).Into(list); err != nil {
		return h.explain(err)
	}
	var failed []error
	for i := range list.Items {
		h.namespace = list.Items[i].Namespace
		failed = append(failed, h.act(cmd, verb, list.Items[i].Name, done))
	}
	return errors.Join(failed...)
}
