package fleet

import (
	"context"
	"embed"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// Scheme has the kinds of the fleet.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	_ = v1alpha1.AddToScheme(s) // never fails
	return s
}()

// newClient returns a client of the fleet's kinds.
func newClient(config *rest.Config) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &v1alpha1.GroupVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(Scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return rest.RESTClientFor(config)
}

//go:generate go tool -modfile=../../test/tools/controllergen/go.mod controller-gen object paths=./v1alpha1 crd:crdVersions=v1,maxDescLen=1000 output:crd:dir=crds
//go:embed crds
var definitions embed.FS

// fieldOwner is the manager of fields that the fleet applies.
const fieldOwner = "sqube-fleet"

// installDefinitions brings the definitions of the fleet's kinds up to date, and returns when they are served.
func installDefinitions(ctx context.Context, host *server.Server) error {
	client, err := clientset.NewForConfig(host.Loopback("system:apiserver", "system:masters"))
	if err != nil {
		return err
	}
	all := client.ApiextensionsV1().CustomResourceDefinitions()
	files, err := definitions.ReadDir("crds")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := definitions.ReadFile("crds/" + file.Name())
		if err != nil {
			return err
		}
		if text, err = yaml.YAMLToJSON(text); err != nil {
			return err
		}
		name := ""
		err = retry.OnError(retry.DefaultBackoff, func(error) bool { return ctx.Err() == nil }, func() error {
			applied, err := all.Patch(ctx, definitionIn(file.Name()), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: fieldOwner, Force: ptr.To(true)})
			if err == nil {
				name = applied.Name
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("defining %s: %w", file.Name(), err)
		}
		err = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			d, err := all.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for _, condition := range d.Status.Conditions {
				if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
					return true, nil
				}
			}
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("defining %s: %w", name, err)
		}
	}
	return nil
}

// definitionIn returns the name of the definition in a file of controller-gen: GROUP_PLURAL.yaml.
func definitionIn(file string) string {
	var group, plural string
	for i := range file {
		if file[i] == '_' {
			group, plural = file[:i], file[i+1:len(file)-len(".yaml")]
		}
	}
	return plural + "." + group
}
