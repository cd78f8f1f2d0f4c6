package handlers

import (
	"sync/atomic"

	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/kubernetes/pkg/printers"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
)

// printer has the functions that print the rows of Tables, for every built-in kind.
var printer atomic.Pointer[printers.HumanReadableGenerator]

// sharePrinter makes a store, and its subresources' copies of it, print with the printer of the first store of the process. Upstream
// gives each store a printer of its own for all kinds.
func sharePrinter(store *registry.Store) {
	convertor, ok := store.TableConvertor.(printerstorage.TableConvertor)
	if !ok {
		return
	}
	own, ok := convertor.TableGenerator.(*printers.HumanReadableGenerator)
	if !ok || printer.CompareAndSwap(nil, own) {
		return
	}
	if shared := printer.Load(); own != shared {
		*own = *shared
	}
}
