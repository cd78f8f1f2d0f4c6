// Command apiserver prints what clients and administrators see of the kube-apiserver in go.mod, as sorted lines: flags, feature gates,
// admission plugins, resources, roles, health checks, metrics, and the priorities of group versions. It imports no package of sqube
// but the lists' form, so it can be built when sqube does not yet fit a new Kubernetes.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/sqube/sqube/test/surface"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
}

// everything turns on what kube-apiserver serves on request.
var everything = []string{"--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true"}

// run prints everything, or only what a server with certain flags serves if the arguments are "served FLAG…".
func run(args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == "served" {
		items, err := served(args[1:])
		surface.Print(out, items)
		return err
	}
	byDefault, err := servedWith()
	if err != nil {
		return err
	}
	all, err := servedWith(everything...)
	if err != nil {
		return err
	}
	surface.Print(out, slices.Concat(described(), byDefault, surface.OnRequest(byDefault, all)))
	return nil
}

// servedWith returns what a kube-apiserver with additional flags serves. Feature gates are the process', so it is another one.
func servedWith(flags ...string) ([]surface.Item, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var output, log bytes.Buffer
	cmd := exec.Command(self, append([]string{"served"}, flags...)...)
	cmd.Env = append(os.Environ(), "ETCD_CLIENT_DEBUG=fatal") // the client's log level
	cmd.Stdout, cmd.Stderr = &output, &log
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kube-apiserver %s: %w\n%s", strings.Join(flags, " "), err, &log)
	}
	return surface.Parse(&output)
}
