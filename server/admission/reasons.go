package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	api "k8s.io/kubernetes/pkg/apis/core"
)

// withReasons makes each plugin's errors say whose fault they are. One without a reason is the server's: a plugin that
// refuses what was sent says so by Forbidden, Invalid or BadRequest.
func withReasons(plugin admission.Interface, name string) admission.Interface {
	if name == lifecycle.PluginName {
		plugin = namespaces{plugin}
	}
	return reasons{plugin}
}

// namespaces is NamespaceLifecycle, which asks the server whether there is the namespace of what is created. It could not
// even ask for one whose name no path can have.
type namespaces struct{ admission.Interface }

// Admit implements admission.MutationInterface.
func (n namespaces) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if problems := content.IsPathSegmentName(a.GetNamespace()); len(problems) > 0 && a.GetKind().GroupKind() != api.Kind("Namespace") {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid namespace %q: %s", a.GetNamespace(), strings.Join(problems, ", ")))
	}
	return n.Interface.(admission.MutationInterface).Admit(ctx, a, o)
}

type reasons struct{ admission.Interface }

// Admit implements admission.MutationInterface.
func (r reasons) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if plugin, ok := r.Interface.(admission.MutationInterface); ok {
		return reason(plugin.Admit(ctx, a, o))
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (r reasons) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if plugin, ok := r.Interface.(admission.ValidationInterface); ok {
		return reason(plugin.Validate(ctx, a, o))
	}
	return nil
}

func reason(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}
