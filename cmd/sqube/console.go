package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/console"
	"github.com/sqube/sqube/server/trialrun"
)

func consoleCommand() *cobra.Command {
	var c cluster
	var f fileConsole
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "console [SOURCE]",
		Short: "Open the console in a browser, with the rights of a kubeconfig or on a backup",
		Long: `Open the console in a browser, with the rights of a kubeconfig. It is served on this
machine, at 127.0.0.1 and a random port, until the command is interrupted. The URL
that it prints opens it in one browser, within a minute, and gives that browser
these rights. The browser that it starts gets another URL, in a private file.

With SOURCE, it shows a backup, without any server: a file that sqube backup wrote, or
a folder or s3://BUCKET/PREFIX that backup --follow or serve --archive writes; or a
cluster of any kind, kube:CONTEXT, without the values of its Secrets. What it
shows is a copy, in a private folder under $TMPDIR that is removed at the end. Nothing
can be changed in it, nothing in it grows old, and it connects to nobody.`,
		Example: `  sqube console --kubeconfig data/admin.kubeconfig
  sqube console /backups/sqube-2026-11-21.db
  sqube console kube:prod`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer listener.Close()
			cmd.SetContext(untilInterrupt(cmd.Context()))
			var page browserPage
			defer page.remove()
			opened := func(proxy *console.Proxy) {
				fmt.Fprintln(cmd.OutOrStdout(), proxy.URL(func() {}))
				if !noBrowser {
					page.open(proxy)
				}
			}
			if len(args) > 0 {
				return f.run(cmd, args[0], listener, opened)
			}
			if err := c.load(); err != nil {
				return err
			}
			return serveConsole(cmd.Context(), c.config, listener, opened)
		},
	}
	fs := cmd.Flags()
	c.addFlags(fs)
	addEncryptionFlag(cmd, &f.encryption)
	fs.BoolVar(&noBrowser, "no-browser", false, "Only print the URL.")
	return cmd
}

// serveConsole serves the console on listener, with the rights of config, until ctx ends. It calls opened with what
// makes the URLs that open it.
func serveConsole(ctx context.Context, config *rest.Config, listener net.Listener, opened func(*console.Proxy)) error {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	proxy := console.NewProxy(listener.Addr().String(), &url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path}, transport, &trialrun.Runner{Program: program})
	opened(proxy)
	served := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = served.Close() })
	if err := served.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
