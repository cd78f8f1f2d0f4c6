// Package envtest lets controller-runtime's envtest run on sqube. Envtest starts the programs etcd and kube-apiserver in the folder
// KUBEBUILDER_ASSETS. Write makes such a folder with scripts that run sqube.
//
//	test ──► etcd            knows the data directory
//	    └──► kube-apiserver ──► asks etcd for the data directory ──► serves it
package envtest

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/sqube/sqube/server/wholefile"
)

// The commands of sqube that stand in for programs.
const (
	EtcdCommand   = "envtest-etcd"
	APIServerFlag = "envtest" // of sqube serve
)

// Write creates the folder dir if it does not exist. In it, it writes kube-apiserver and etcd, which run the program sqube, and
// kubectl, which runs the program kubectl. All arguments are paths; kubectl may be "" if there is none.
func Write(dir, sqube, kubectl string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	const missing = "echo 'kubectl was not found on PATH when sqube envtest wrote this file: install it and run sqube envtest again, or name it with --kubectl' >&2\nexit 127\n"
	for name, script := range map[string]string{
		"kube-apiserver": run(sqube, "serve", "--"+APIServerFlag),
		"etcd":           run(sqube, EtcdCommand),
		"kubectl":        run(kubectl),
	} {
		if name == "kubectl" && kubectl == "" {
			script = missing
		}
		// A test that is starting a program finds the old one or the new one.
		err := wholefile.Replace(filepath.Join(dir, name), 0o755, func(f *os.File) error {
			_, err := f.WriteString("#!/bin/sh\n" + script)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// run returns a script that executes the program with the given arguments before its own.
func run(program string, arguments ...string) string {
	words := append([]string{quote(program)}, arguments...)
	return "exec " + strings.Join(words, " ") + ` "$@"` + "\n"
}

// quote quotes text for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
