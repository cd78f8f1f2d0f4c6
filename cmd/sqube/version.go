package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the Kubernetes version of this binary's API, and the commit it was built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := version.Get()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "Kubernetes API %s\nsqube commit %s (%s), built %s with %s for %s/%s\n",
				v.GitVersion, v.GitCommit, v.GitTreeState, v.BuildDate, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
