package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/envtest"
	"github.com/sqube/sqube/server/controllers"
)

func envtestCommand() *cobra.Command {
	var kubectl string
	cmd := &cobra.Command{
		Use:   "envtest DIR",
		Short: "Run controller-runtime's envtest on this binary",
		Long: `Run controller-runtime's envtest on this binary.

This writes programs named kube-apiserver, etcd and kubectl to DIR, for tests that
run with KUBEBUILDER_ASSETS=DIR. kube-apiserver and etcd run this binary. Each test
has its own cluster, which ends with the test. It has controllers and nodes if the
test asks for them with --control-plane and --simulated-nodes.`,
		Args: oneArgument("a folder for the programs, such as sqube envtest bin/envtest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			own, err := os.Executable()
			if err != nil {
				return err
			}
			if kubectl, err = findKubectl(kubectl, dir); err != nil {
				return err
			}
			if err := envtest.Write(dir, own, kubectl); err != nil {
				return err
			}
			if kubectl == "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "kubectl is not on PATH: tests that run it will fail. Name one with --kubectl.")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "export KUBEBUILDER_ASSETS=%s\n", dir)
			return err
		},
	}
	cmd.Flags().StringVar(&kubectl, "kubectl", "", "The kubectl for the tests. If unset, the one on PATH.")
	return cmd
}

// findKubectl returns the absolute path of the given kubectl, or of one on PATH outside dir, or "".
func findKubectl(given, dir string) (string, error) {
	if given != "" {
		path, err := exec.LookPath(given)
		if err != nil {
			return "", fmt.Errorf("--kubectl: %w", err)
		}
		return filepath.Abs(path)
	}
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		folder, err := filepath.Abs(folder)
		if err != nil {
			return "", err
		}
		if path, err := exec.LookPath(filepath.Join(folder, "kubectl")); err == nil && folder != dir {
			return path, nil
		}
	}
	return "", nil
}

// envtestEtcdCommand is the command that stands in for etcd.
func envtestEtcdCommand() *cobra.Command {
	etcd := &envtest.Etcd{}
	cmd := &cobra.Command{
		Use:                envtest.EtcdCommand,
		Short:              "Stand in for etcd in tests: see sqube envtest",
		Hidden:             true,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, // etcd's other flags mean nothing here
		RunE: func(cmd *cobra.Command, _ []string) error {
			return etcd.Run(untilInterrupt(cmd.Context()))
		},
	}
	etcd.AddFlags(cmd.Flags())
	return cmd
}

// addEnvtestFlag adds the hidden flag that makes sqube serve stand in for kube-apiserver in tests.
func addEnvtestFlag(fs *pflag.FlagSet, flag *bool) {
	fs.BoolVar(flag, envtest.APIServerFlag, false, "Stand in for kube-apiserver in tests: see sqube envtest.")
	fs.Lookup(envtest.APIServerFlag).Hidden = true
}

// standIn sets the options for standing in for envtest's kube-apiserver: no controllers, all of kube-apiserver's flags accepted, and
// the data directory that the stand-in for etcd names. Each start on the same etcd has other keys.
func (o *serveOptions) standIn(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("controllers") {
		o.server.Controllers = []string{"-" + controllers.All}
	}
	o.ignored.silent, o.server.DropConnections, o.server.KeysVary = true, true, true
	endpoint, _, _ := strings.Cut(o.ignored.value("etcd-servers"), ",")
	if endpoint == "" {
		return errors.New("--etcd-servers must be specified")
	}
	trust, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CAFile: o.ignored.value("etcd-cafile"), CertFile: o.ignored.value("etcd-certfile"), KeyFile: o.ignored.value("etcd-keyfile"),
	}})
	if err != nil {
		return fmt.Errorf("--etcd-cafile, --etcd-certfile, --etcd-keyfile: %w", err)
	}
	dir, err := envtest.DataDir(cmd.Context(), strings.TrimSuffix(endpoint, "/"), trust)
	if err != nil {
		return fmt.Errorf("--etcd-servers: %w", err)
	}
	o.server.DataDir = dir
	return nil
}
