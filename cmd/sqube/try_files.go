package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/server/trial"
)

// betweenObjects is how long controllers have to see an object before the next one is applied, such as a namespace before what is in it.
const betweenObjects = 10 * time.Millisecond

// applyInCopy applies objects one by one, as kubectl apply --server-side does: a refusal says nothing about the others. It is called in the trial.
func (o *tryOptions) applyInCopy(ctx context.Context, config *rest.Config, objects []manifests.Object, answers *trial.Answers) error {
	a := o.apply
	config = rest.CopyConfig(config)
	config.WarningHandler = answers
	a.loader = clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: o.namespace()}})
	if err := a.use(config); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(a.config)
	if err != nil {
		return err
	}
	definitions, rest := manifests.Defined(objects)
	apply := func(objects []manifests.Object) (applied []manifests.Object) {
		for _, object := range objects {
			if err := a.applyOne(ctx, client, object, o.namespace()); err != nil {
				answers.Refuse(manifests.Name(object.Unstructured), err)
				continue
			}
			applied = append(applied, object)
			time.Sleep(betweenObjects)
		}
		return applied
	}
	for _, d := range apply(definitions) {
		if err := a.established(ctx, d); err != nil {
			answers.Fail(err.Error() + ".")
		}
	}
	if len(definitions) > 0 {
		meta.MaybeResetRESTMapper(a.mapper)
	}
	apply(rest)
	return nil
}

// applyOne applies an object on its own.
func (o *applyOptions) applyOne(ctx context.Context, client dynamic.Interface, object manifests.Object, namespace string) error {
	mapping, err := o.place(object, namespace)
	if err != nil {
		return err
	}
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: o.manager, FieldValidation: o.validation}
	if o.force {
		options.Force = &o.force
	}
	_, err = client.Resource(mapping.Resource).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.ApplyPatchType, text, options)
	return err
}
