package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/transactions"
	"github.com/sqube/sqube/server/trial"
)

// isTransaction reports whether files have a Transaction, and nothing else: the console tries changes in the form in which it makes them.
func isTransaction(objects []manifests.Object) bool {
	return len(objects) == 1 && objects[0].GroupVersionKind() == changes.GroupVersion.WithKind("Transaction")
}

// commitInCopy commits a Transaction. It is called in the trial.
func commitInCopy(ctx context.Context, config *rest.Config, object manifests.Object, answers *trial.Answers) error {
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	var t transactions.Transaction
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	withoutConditions(&t.Spec)
	if text, err = json.Marshal(&t); err != nil {
		return err
	}
	own := rest.CopyConfig(config)
	own.GroupVersion, own.APIPath, own.ContentType = &changes.GroupVersion, "/apis", runtime.ContentTypeJSON
	own.NegotiatedSerializer = serializer.NewCodecFactory(changes.Scheme).WithoutConversion()
	client, err := rest.RESTClientFor(own)
	if err != nil {
		return err
	}
	post := func(namespace string) ([]byte, error) {
		return answer(client.Post().NamespaceIfScoped(namespace, namespace != "").Resource(transactions.Resource).Body(text).Do(ctx))
	}
	written, err := post("")
	if namespace := namespaceOf(&t.Spec); namespace != "" && apierrors.IsForbidden(err) {
		written, err = post(namespace) // for those who have the right in it alone
	}
	if _, refused := errors.AsType[*apierrors.StatusError](err); refused {
		answers.Refuse("", err) // which names the operation and its object
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(written, &t); err != nil {
		return err
	}
	for _, o := range t.Status.Operations {
		for _, w := range o.Warnings {
			answers.Warn(w)
		}
	}
	return nil
}

// namespaceOf returns the namespace of all objects that a transaction writes, "" if there is none, or more than one.
func namespaceOf(spec *transactions.Spec) string {
	found := map[string]bool{}
	for _, o := range spec.Operations {
		var object metav1.PartialObjectMetadata
		switch {
		case o.Target != nil:
			object.Namespace = o.Target.Namespace
		case o.Object == nil || json.Unmarshal(o.Object.Raw, &object) != nil:
			return ""
		}
		found[object.Namespace] = true
	}
	if len(found) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(found))[0]
}

// withoutConditions lets a transaction be made on a copy whose controllers have gone on since: what it stands on is a matter of the cluster.
func withoutConditions(spec *transactions.Spec) {
	spec.Require = nil
	for i := range spec.Operations {
		spec.Operations[i].Preconditions = nil
	}
}
