package main

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/server/wholefile"
)

// credentialsCommandName is the command that a merged kubeconfig runs.
const credentialsCommandName = "credentials"

// kubeconfigOptions say for whom a kubeconfig of a hosted cluster is, and where it goes.
type kubeconfigOptions struct {
	host
	user     string
	groups   []string
	lifetime time.Duration

	file  string
	merge bool
	name  string // of the context
}

func (o *kubeconfigOptions) addFlags(cmd *cobra.Command) {
	o.host.addFlags(cmd, "json", "yaml")
	fs := cmd.Flags()
	fs.DurationVar(&o.lifetime, "lifetime", 0, "How long the credentials are valid, at most 24h. If unset, an hour.")
	fs.StringVar(&o.file, "file", "", "Write the kubeconfig to this file, which only you may read, and print the cluster's name.")
}

func (o *kubeconfigOptions) addUserFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.user, "as-user", "", "User of the kubeconfig in the cluster. If unset, you, as an administrator.")
	fs.StringArrayVar(&o.groups, "as-user-group", nil, "Group of that user. May be repeated.")
}

func hostedKubeconfigCommand() *cobra.Command {
	var o kubeconfigOptions
	cmd := &cobra.Command{
		Use:   "kubeconfig NAME",
		Short: "Print a kubeconfig of a cluster, with credentials that are valid for a short time",
		Long: `Print a kubeconfig of a cluster, with credentials that are valid for a short time.

With --merge, the cluster becomes a context of your own kubeconfig instead. That holds no
credentials: kubectl runs sqube cluster credentials, which gets them from the host when
they are needed, as long as you may.`,
		Example: `  sqube cluster kubeconfig dev --file dev.kubeconfig
  sqube cluster kubeconfig dev --merge && kubectl --context dev get namespaces`,
		Args: oneArgument("one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.merge && (o.file != "" || o.output != "") {
				return errors.New("--merge must not be given with --file or --output")
			}
			if err := o.load(); err != nil {
				return err
			}
			given, err := o.credentials(cmd.Context(), o.in(o.fleet.Post(), args[0]).SubResource("kubeconfig"), nil)
			if err != nil {
				return err
			}
			if o.merge {
				return o.mergeInto(cmd, given)
			}
			return o.write(cmd, given)
		},
	}
	o.addFlags(cmd)
	o.addUserFlags(cmd)
	cmd.Flags().BoolVar(&o.merge, "merge", false, "Add the cluster to your kubeconfig as a context: to --kubeconfig, $KUBECONFIG or ~/.kube/config.")
	cmd.Flags().StringVar(&o.name, "context-name", "", "With --merge, the name of the context. If unset, that of the cluster.")
	return cmd
}

// credentials asks for credentials of a cluster.
func (o *kubeconfigOptions) credentials(ctx context.Context, request *rest.Request, ttl *metav1.Duration) (*v1alpha1.Credentials, error) {
	asked := &v1alpha1.Credentials{Spec: v1alpha1.CredentialsSpec{User: o.user, Groups: o.groups, ExpirationSeconds: int64(o.lifetime.Seconds()), TTL: ttl}}
	asked.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Credentials"}
	body, err := terminal.JSONLine(asked)
	if err != nil {
		return nil, err
	}
	text, err := answer(request.SetHeader("Content-Type", asJSON).Body(body).Do(ctx))
	if err != nil {
		return nil, o.explain(err)
	}
	given := &v1alpha1.Credentials{}
	return given, decodeJSON(text, given)
}

// write prints credentials, or writes their kubeconfig to a file.
func (o *kubeconfigOptions) write(cmd *cobra.Command, given *v1alpha1.Credentials) error {
	out := cmd.OutOrStdout()
	switch {
	case o.file != "":
		path, err := filepath.Abs(o.file)
		if err == nil {
			err = wholefile.Replace(path, 0o600, func(f *os.File) error {
				_, err := f.WriteString(given.Status.Kubeconfig)
				return err
			})
		}
		if err != nil {
			return err
		}
		if o.output == "" {
			_, err = fmt.Fprintln(out, terminal.Printable(given.Status.Cluster))
			return err
		}
	case o.output == "":
		_, err := fmt.Fprint(out, given.Status.Kubeconfig)
		return err
	}
	return o.printObject(out, given)
}

// mergeInto adds a context for a cluster to the kubeconfig.
func (o *kubeconfigOptions) mergeInto(cmd *cobra.Command, given *v1alpha1.Credentials) error {
	own, err := o.loader.RawConfig()
	if err != nil {
		return err
	}
	through := cmp.Or(o.overrides.CurrentContext, own.CurrentContext)
	if own.Contexts[through] == nil {
		return errors.New("--merge needs a context of the host in your kubeconfig: without one, use --file")
	}
	other, err := clientcmd.Load([]byte(given.Status.Kubeconfig))
	if err != nil {
		return err
	}
	at := other.Clusters[other.Contexts[other.CurrentContext].Cluster]
	program, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"cluster", credentialsCommandName, given.Status.Cluster, "--namespace", given.Status.Namespace, "--context", through}
	if o.kubeconfig != "" {
		path, err := filepath.Abs(o.kubeconfig)
		if err != nil {
			return err
		}
		args = append(args, "--kubeconfig", path)
	}
	for flag, value := range map[string]string{"--as-user": o.user, "--lifetime": o.lifetime.String()} {
		if value != "" && value != "0s" {
			args = append(args, flag, value)
		}
	}
	for _, group := range o.groups {
		args = append(args, "--as-user-group", group)
	}
	name := cmp.Or(o.name, given.Status.Cluster)
	if known := own.Contexts[name]; known != nil && (own.Clusters[known.Cluster] == nil || own.Clusters[known.Cluster].Server != at.Server) {
		return fmt.Errorf("your kubeconfig has another context %q: give another name with --context-name", name)
	}
	own.Clusters[name] = at
	own.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Command: program, Args: args, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	own.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	if err := clientcmd.ModifyConfig(o.loader.ConfigAccess(), own, false); err != nil {
		return terminal.OneLine(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "kubectl --context %s get namespaces\n", shell(name))
	return err
}

// hostedCredentialsCommand is what kubectl runs for a merged kubeconfig.
func hostedCredentialsCommand() *cobra.Command {
	var o kubeconfigOptions
	cmd := &cobra.Command{
		Use:   credentialsCommandName + " NAME",
		Short: "Print credentials of a cluster for kubectl, which runs this command by itself",
		Long: `Print credentials of a cluster as an ExecCredential. kubectl and other clients run this
command by themselves, if sqube cluster kubeconfig --merge has added the cluster to your
kubeconfig.`,
		Args: oneArgument("one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.load(); err != nil {
				return err
			}
			given, err := o.credentials(cmd.Context(), o.in(o.fleet.Post(), args[0]).SubResource("kubeconfig"), nil)
			if err != nil {
				return err
			}
			made, err := execCredential(given)
			if err != nil {
				return err
			}
			text, err := terminal.JSONLine(made)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
	o.host.addFlags(cmd)
	cmd.Flags().DurationVar(&o.lifetime, "lifetime", 0, "How long the credentials are valid, at most 24h. If unset, an hour.")
	o.addUserFlags(cmd)
	return cmd
}

// execCredential returns the credentials of a kubeconfig in the form that clients expect of a command.
func execCredential(given *v1alpha1.Credentials) (*clientauthenticationv1.ExecCredential, error) {
	config, err := clientcmd.Load([]byte(given.Status.Kubeconfig))
	if err != nil {
		return nil, err
	}
	who := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	made := &clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status: &clientauthenticationv1.ExecCredentialStatus{
			Token: who.Token, ClientCertificateData: string(who.ClientCertificateData), ClientKeyData: string(who.ClientKeyData),
		},
	}
	if expires := given.Status.Expires; !expires.IsZero() {
		early := metav1.NewTime(expires.Add(-time.Minute)) // so that no request is on its way when they end
		made.Status.ExpirationTimestamp = &early
	}
	if block, _ := pem.Decode(who.ClientKeyData); block == nil && who.Token == "" {
		return nil, fmt.Errorf("the host has given no credentials for cluster %s", given.Status.Cluster)
	}
	return made, nil
}

func hostedClaimCommand() *cobra.Command {
	var o kubeconfigOptions
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "claim POOL",
		Short: "Take a cluster out of a pool, and print its kubeconfig",
		Long: `Take a cluster out of a pool, and print its kubeconfig. It is yours until you release it,
or until its time is over: the pool's claimTTL, or --ttl.`,
		Example: `  name=$(sqube cluster claim ci -n ci --file kubeconfig --ttl 20m)
  KUBECONFIG=kubeconfig ./test.sh
  sqube cluster release -n ci "$name"`,
		Args: oneArgument("one POOL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.load(); err != nil {
				return err
			}
			var lives *metav1.Duration
			if ttl != 0 {
				lives = &metav1.Duration{Duration: ttl}
			}
			request := o.fleet.Post().Namespace(o.namespace).Resource(poolsResource).Name(args[0]).SubResource("claim")
			given, err := o.credentials(cmd.Context(), request, lives)
			if err != nil {
				return err
			}
			return o.write(cmd, given)
		},
	}
	o.addFlags(cmd)
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "How long the cluster is yours, at most as long as the pool allows. If unset, that long.")
	return cmd
}

func hostedReleaseCommand() *cobra.Command {
	var h host
	cmd := &cobra.Command{
		Use:   "release NAME...",
		Short: "Give back clusters that you have claimed",
		Long: `Give back clusters that you have claimed from a pool. They are removed: who claims next
gets a new one.`,
		Args: clusterNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := h.load(); err != nil {
				return err
			}
			return each(names, func(name string) error {
				if err := h.in(h.fleet.Post(), name).SubResource("release").Do(cmd.Context()).Error(); err != nil {
					return h.explain(err)
				}
				return h.print(cmd.OutOrStdout(), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.namespace}}, "released")
			})
		},
	}
	h.addFlags(cmd, "name")
	return cmd
}
