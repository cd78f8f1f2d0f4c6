// Package envtest lets controller-runtime's envtest run on sqube. Envtest starts the programs etcd and kube-apiserver that
// it finds in the folder KUBEBUILDER_ASSETS; Write makes such a folder, of scripts that run sqube.
//
//	test ──► etcd            says where the state is
//	    └──► kube-apiserver ──► etcd: where is it? ──► serves what is there
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

// Write makes the folder dir, where it is not there, and in it the stand-ins kube-apiserver and etcd, which run the program
// sqube, and kubectl, which runs the program kubectl. All are paths; kubectl may be "" if there is none.
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

// run is a script that becomes the program, with more arguments before its own.
func run(program string, arguments ...string) string {
	words := append([]string{quote(program)}, arguments...)
	return "exec " + strings.Join(words, " ") + ` "$@"` + "\n"
}

// quote makes one word of text for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
