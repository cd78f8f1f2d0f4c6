package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/cmd/sqube/internal/join"
)

func tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and delete bootstrap tokens, which let nodes join",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(tokenCreateCommand(), tokenListCommand(), tokenDeleteCommand())
	return cmd
}

// administrator finds a running server and an administrator's credentials.
type administrator struct{ dataDir, kubeconfig string }

func (a *administrator) addFlags(cmd *cobra.Command) {
	addSharedFlags(cmd, &a.dataDir, "Folder of the server, with admin.kubeconfig.")
	cmd.Flags().StringVar(&a.kubeconfig, "kubeconfig", "", "Kubeconfig of an administrator. If unset, admin.kubeconfig under --data-dir.")
}

func (a *administrator) client() (kubernetes.Interface, *clientcmdapi.Config, error) {
	path := a.kubeconfig
	if path == "" {
		path = filepath.Join(a.dataDir, "admin.kubeconfig")
	}
	kubeconfig, err := clientcmd.LoadFromFile(path)
	if err == nil {
		err = clientcmd.ResolveLocalPaths(kubeconfig)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the kubeconfig: %w; give an administrator's with --kubeconfig, or the server's folder with --data-dir", err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return client, kubeconfig, nil
}

// tokenOptions are the flags of sqube token create.
type tokenOptions struct {
	administrator
	server, description        string
	lifetime                   time.Duration
	printJoin, printKubeconfig bool
}

func tokenCreateCommand() *cobra.Command {
	var o tokenOptions
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a bootstrap token and print it",
		Long: `Create a bootstrap token and print it.

The server must run, with --control-plane or beside a kube-controller-manager. The
first token also creates what nodes need to join, as kubeadm init does: the ConfigMap
kube-public/cluster-info, which every token signs, and the right to request a node's
certificate, which is approved and signed at once.`,
		Example: "  sqube token create --print-join",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.lifetime < 0 {
				return errors.New("--ttl must be 0 or more")
			}
			if o.printJoin && o.printKubeconfig {
				return errors.New("--print-join and --print-kubeconfig must not be given together")
			}
			if u, err := url.Parse(o.server); o.server != "" && (err != nil || u.Host == "") {
				return fmt.Errorf("--server must be a URL such as https://10.0.0.1:6443, not %q", o.server)
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.addFlags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&o.server, "server", "", "URL at which nodes reach the server. If unset, a server's --advertise-address.")
	fs.StringVar(&o.description, "description", "", "What the token is for.")
	fs.DurationVar(&o.lifetime, "ttl", 24*time.Hour, "How long the token is valid. 0 for no expiry.")
	fs.BoolVar(&o.printJoin, "print-join", false, "Print the kubeadm command that joins a machine as a node.")
	fs.BoolVar(&o.printKubeconfig, "print-kubeconfig", false, "Print a kubeconfig with the token, for a kubelet's --bootstrap-kubeconfig.")
	return cmd
}

func (o *tokenOptions) run(ctx context.Context, out io.Writer) error {
	client, kubeconfig, err := o.client()
	if err != nil {
		return err
	}
	cluster, err := join.ReadCluster(ctx, client, kubeconfig, o.server)
	if err != nil {
		return err
	}
	if err := join.Publish(ctx, client, cluster); err != nil {
		return err
	}
	token, err := join.CreateToken(ctx, client, o.description, o.lifetime)
	if err != nil {
		return err
	}
	text, err := o.text(cluster, token)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, text)
	return err
}

// text returns what the command prints.
func (o *tokenOptions) text(cluster *join.Cluster, token string) (string, error) {
	switch {
	case o.printKubeconfig:
		kubeconfig, err := cluster.BootstrapKubeconfig(token)
		return string(kubeconfig), err
	case o.printJoin:
		pins, err := cluster.Pins()
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("kubeadm join %s --token %s --discovery-token-ca-cert-hash %s\n",
			cluster.Endpoint(), token, strings.Join(pins, " --discovery-token-ca-cert-hash ")), nil
	}
	return token + "\n", nil
}
