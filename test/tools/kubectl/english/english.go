// Package english keeps kubectl from loading translations, which takes a third of the CPU time of a short command. It must be
// initialized before kubectl's packages; Go initializes packages in the order of their paths.
package english

import "k8s.io/kubectl/pkg/util/i18n"

func init() {
	if err := i18n.SetLoadTranslationsFunc(func() error { return nil }); err != nil {
		panic(err)
	}
}
