package main

import (
	"slices"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"github.com/sqube/sqube/test/surface"
)

// described returns what upstream's packages say without a server.
func described() []surface.Item {
	return slices.Concat(flags(), gates(), plugins(), roles())
}

func flags() []surface.Item {
	var items []surface.Item
	apiserver.NewAPIServerCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == "version" { // they end the program
			return
		}
		fields := map[string]string{"default": f.DefValue, "type": f.Value.Type()}
		if f.Deprecated != "" {
			fields["deprecated"] = f.Deprecated
		}
		items = append(items, surface.Item{Kind: "flag", Name: "--" + f.Name, Fields: fields})
	})
	return items
}

func gates() []surface.Item {
	var items []surface.Item
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		items = append(items, surface.Gate(string(name), spec.Default, string(spec.PreRelease)))
	}
	return items
}

func plugins() []surface.Item {
	off := kubeoptions.DefaultOffAdmissionPlugins()
	return surface.Plugins(kubeoptions.AllOrderedPlugins, func(name string) bool { return !off.Has(name) })
}

func roles() []surface.Item {
	var items []surface.Item
	for _, role := range slices.Concat(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()) {
		items = append(items, surface.ClusterRole(role)...)
	}
	for _, binding := range slices.Concat(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()) {
		items = append(items, surface.Binding("", binding.ObjectMeta, binding.RoleRef, binding.Subjects))
	}
	for _, roles := range bootstrappolicy.NamespaceRoles() {
		for _, role := range roles {
			items = append(items, surface.Role(role)...)
		}
	}
	for namespace, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, binding := range bindings {
			items = append(items, surface.Binding(namespace, binding.ObjectMeta, binding.RoleRef, binding.Subjects))
		}
	}
	return items
}
