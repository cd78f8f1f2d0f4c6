// Command manager prints the controllers of the kube-controller-manager in go.mod. It is not part of the command apiserver, in which
// it would register its metrics.
package main

import (
	"os"
	"slices"

	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/sqube/sqube/test/surface"
)

func main() {
	off := manager.ControllersDisabledByDefault()
	var items []surface.Item
	for _, name := range manager.KnownControllers() {
		items = append(items, surface.Controller(name, !slices.Contains(off, name)))
	}
	surface.Print(os.Stdout, items)
}
