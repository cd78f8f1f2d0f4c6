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
// refuses what was sent says so by Forbidden, Invalid or BadRequest. What is returned does the steps that the plugin does,
// and no others: each is measured.
func withReasons(plugin admission.Interface, name string) admission.Interface {
	if name == lifecycle.PluginName {
		plugin = namespaces{plugin}
	}
	mutating, mutates := plugin.(admission.MutationInterface)
	validating, validates := plugin.(admission.ValidationInterface)
	switch {
	case mutates && validates:
		return both{mutator{mutating}, validator{validating}}
	case mutates:
		return mutator{mutating}
	case validates:
		return validator{validating}
	}
	return plugin
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

type mutator struct{ admission.MutationInterface }

// Admit implements admission.MutationInterface.
func (m mutator) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return reason(m.MutationInterface.Admit(ctx, a, o))
}

type validator struct{ admission.ValidationInterface }

// Validate implements admission.ValidationInterface.
func (v validator) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return reason(v.ValidationInterface.Validate(ctx, a, o))
}

type both struct {
	mutator
	validating validator
}

// Validate implements admission.ValidationInterface.
func (b both) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return b.validating.Validate(ctx, a, o)
}

func reason(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}
