package main

import (
	"slices"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"github.com/sqube/sqube/test/surface/lists"
)

// described returns what upstream's packages say without a server.
func described() []lists.Item {
	return slices.Concat(flags(), gates(), plugins(), roles(), controllers())
}

func flags() []lists.Item {
	var items []lists.Item
	apiserver.NewAPIServerCommand().Flags().VisitAll(func(f *pflag.Flag) {
		fields := map[string]string{"default": f.DefValue, "type": f.Value.Type()}
		if f.Deprecated != "" {
			fields["deprecated"] = f.Deprecated
		}
		items = append(items, lists.Item{Kind: "flag", Name: "--" + f.Name, Fields: fields})
	})
	return items
}

func gates() []lists.Item {
	var items []lists.Item
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		items = append(items, lists.Gate(string(name), spec.Default, string(spec.PreRelease)))
	}
	return items
}

func plugins() []lists.Item {
	off := kubeoptions.DefaultOffAdmissionPlugins()
	return lists.Plugins(kubeoptions.AllOrderedPlugins, func(name string) bool { return !off.Has(name) })
}

func roles() []lists.Item {
	var items []lists.Item
	for _, role := range slices.Concat(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()) {
		items = append(items, lists.ClusterRole(role)...)
	}
	for _, binding := range slices.Concat(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()) {
		items = append(items, lists.Binding("", binding.ObjectMeta, binding.RoleRef, binding.Subjects))
	}
	for _, roles := range bootstrappolicy.NamespaceRoles() {
		for _, role := range roles {
			items = append(items, lists.Role(role)...)
		}
	}
	for namespace, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, binding := range bindings {
			items = append(items, lists.Binding(namespace, binding.ObjectMeta, binding.RoleRef, binding.Subjects))
		}
	}
	return items
}

func controllers() []lists.Item {
	off := manager.ControllersDisabledByDefault()
	var items []lists.Item
	for _, name := range manager.KnownControllers() {
		items = append(items, lists.Controller(name, !slices.Contains(off, name)))
	}
	return items
}
