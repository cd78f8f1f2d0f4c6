package main

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/server/console"
)

func consoleCommand() *cobra.Command {
	var kubeconfig, kubeContext string
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Open the console in a browser, with the rights of a kubeconfig",
		Long: `Open the console in a browser, with the rights of a kubeconfig. It is served on this
machine, at 127.0.0.1 and a random port, until the command is interrupted. Whoever
has the URL that it prints has these rights.`,
		Example: "  sqube console --kubeconfig data/admin.kubeconfig",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath = kubeconfig
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: kubeContext}).ClientConfig()
			if err != nil {
				return err
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			proxy, err := consoleProxy(config, listener.Addr().String())
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), proxy.URL())
			if !noBrowser {
				openBrowser(proxy.URL())
			}
			server := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
			return server.Serve(listener)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&kubeconfig, "kubeconfig", "", "Kubeconfig. If unset, those that kubectl uses.")
	fs.StringVar(&kubeContext, "context", "", "Context in the kubeconfig. If unset, the current one.")
	fs.BoolVar(&noBrowser, "no-browser", false, "Only print the URL.")
	return cmd
}

func consoleProxy(config *rest.Config, host string) (*console.Proxy, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return console.NewProxy(host, &url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path}, transport), nil
}

// openBrowser opens a URL where there is a browser. Where there is none, the user has read the URL.
func openBrowser(address string) {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	cmd := exec.Command(program, address)
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }()
	}
}
