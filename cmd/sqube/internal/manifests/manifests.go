// Package manifests reads objects from files as kubectl does, and puts them in the order in which they can be written.
package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
)

// Object is an object and the file that it is from.
type Object struct {
	*unstructured.Unstructured
	Source string
}

// String names the object and its file.
func (o Object) String() string { return o.Source + ": " + Name(o.Unstructured) }

// Name names an object as kubectl does, with its namespace.
func Name(o *unstructured.Unstructured) string {
	name := o.GetKind() + " " + o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
	}
	return name
}

// Key identifies an object, whatever the version of its kind.
func Key(o *unstructured.Unstructured) string {
	return o.GroupVersionKind().GroupKind().String() + " " + Name(o)
}

// Files says which objects to read. Its flags are kubectl's.
type Files struct {
	resource.FilenameOptions
	Selector string
}

// AddFlags adds the flags. The verb says what is done with the objects.
func (f *Files) AddFlags(fs *pflag.FlagSet, verb string) {
	fs.StringSliceVarP(&f.Filenames, "filename", "f", nil, "File, folder or URL with the objects to "+verb+", or - for standard input. May be repeated.")
	fs.BoolVarP(&f.Recursive, "recursive", "R", false, "Read the folders of --filename with all that is below them.")
	fs.StringVarP(&f.Kustomize, "kustomize", "k", "", "Folder with a kustomization whose objects to "+verb+", instead of --filename.")
	fs.StringVarP(&f.Selector, "selector", "l", "", "Only objects with these labels, such as app=web.")
}

// Read returns the objects. An error says which file it is about.
func (f *Files) Read(stdin io.Reader) ([]Object, error) {
	if err := f.RequireFilenameOrKustomize(); err != nil {
		return nil, errors.New("want --filename or --kustomize")
	}
	if _, err := labels.Parse(f.Selector); err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	builder := resource.NewLocalBuilder().Unstructured()
	options := f.FilenameOptions
	if slices.Contains(options.Filenames, "-") { // the builder reads os.Stdin
		options.Filenames = slices.DeleteFunc(slices.Clone(options.Filenames), func(name string) bool { return name == "-" })
		builder.Stream(stdin, "standard input")
	}
	found, err := builder.FilenameParam(false, &options).LabelSelectorParam(f.Selector).Flatten().Do().Infos()
	if err != nil {
		return nil, err
	}
	objects := make([]Object, 0, len(found))
	seen := map[string]string{}
	for _, info := range found {
		u, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("%s: want an object with apiVersion and kind", info.Source)
		}
		o := Object{u, info.Source}
		if o.GetName() == "" {
			return nil, fmt.Errorf("%s: a %s has no name", o.Source, o.GetKind())
		}
		if other, twice := seen[Key(u)]; twice {
			return nil, fmt.Errorf("%s is also in %s", o, other)
		}
		seen[Key(u)] = o.Source
		objects = append(objects, o)
	}
	if len(objects) == 0 {
		return nil, errors.New("there are no objects in the files, or none with these labels")
	}
	return objects, nil
}

// order is that of Helm: what others need comes first. Kinds that are not in it, such as custom resources, come before the last two, since
// webhooks may be served by what is written.
var order = []string{
	"PriorityClass", "Namespace", "NetworkPolicy", "ResourceQuota", "LimitRange", "PodDisruptionBudget", "ServiceAccount", "Secret", "ConfigMap",
	"StorageClass", "PersistentVolume", "PersistentVolumeClaim", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role",
	"RoleBinding", "Service", "DaemonSet", "Pod", "ReplicationController", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler", "StatefulSet",
	"Job", "CronJob", "IngressClass", "Ingress", "APIService",
}

// last are the kinds that come after all others.
var last = []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}

func rank(o Object) int {
	if i := slices.Index(order, o.GetKind()); i >= 0 {
		return i
	}
	if i := slices.Index(last, o.GetKind()); i >= 0 {
		return len(order) + 1 + i
	}
	return len(order)
}

// Sort puts objects in the order in which they can be written. Those of one kind stay in the order of the files.
func Sort(objects []Object) {
	slices.SortStableFunc(objects, func(a, b Object) int { return cmp.Compare(rank(a), rank(b)) })
}

// definition is the kind of definitions.
var definition = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// Defined splits sorted objects: if some are of kinds that others define, definitions are all definitions, and rest is all else. Otherwise rest
// is all.
func Defined(objects []Object) (definitions, rest []Object) {
	defines := map[schema.GroupKind]bool{}
	for _, o := range objects {
		if o.GroupVersionKind().GroupKind() == definition {
			group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
			defines[schema.GroupKind{Group: group, Kind: kind}] = true
		}
	}
	if !slices.ContainsFunc(objects, func(o Object) bool { return defines[o.GroupVersionKind().GroupKind()] }) {
		return nil, objects
	}
	for _, o := range objects {
		if o.GroupVersionKind().GroupKind() == definition {
			definitions = append(definitions, o)
		} else {
			rest = append(rest, o)
		}
	}
	return definitions, rest
}
