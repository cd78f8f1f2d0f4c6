package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
)

// withReasons adds a reason to each plugin's errors. An error without a reason is an internal error: a plugin that rejects a request
// returns Forbidden, Invalid or BadRequest. The returned plugin has the same steps as the original and no others, since each
// step is measured.
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

// namespaces is NamespaceLifecycle, which gets the namespace of a created object from the server. It can't request a namespace
// whose name is invalid in a path.
type namespaces struct{ admission.Interface }

func (n namespaces) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if problems := content.IsPathSegmentName(a.GetNamespace()); len(problems) > 0 && a.GetKind().GroupKind() != corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind() {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid namespace %q: %s", a.GetNamespace(), strings.Join(problems, ", ")))
	}
	return n.Interface.(admission.MutationInterface).Admit(ctx, a, o)
}

type mutator struct{ admission.MutationInterface }

func (m mutator) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return reason(m.MutationInterface.Admit(ctx, a, o))
}

type validator struct{ admission.ValidationInterface }

func (v validator) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return reason(v.ValidationInterface.Validate(ctx, a, o))
}

type both struct {
	mutator
	validating validator
}

func (b both) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return b.validating.Validate(ctx, a, o)
}

func reason(err error) error {
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus // allocated, so not before
	if errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}
