// Command kubectl is the real kubectl, built from its module and pinned for the tests.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	_ "github.com/sqube/sqube/test/tools/kubectl/english"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the ways to authenticate that a kubeconfig may name
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints the error and exits like kubectl
	}
	os.Exit(0)
}
