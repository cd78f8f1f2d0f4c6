package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/transactions"
	"github.com/sqube/sqube/server/trial"
)

// isTransaction reports whether files have a Transaction, and nothing else: the console tries changes in the form in which it makes them.
func isTransaction(objects []manifests.Object) bool {
	return len(objects) == 1 && objects[0].GroupVersionKind() == changes.GroupVersion.WithKind("Transaction")
}

// transaction sets a Transaction that makes the change. Its user may make it: what counts is what they may do to the objects, and a cluster that is not
// of sqube gives nobody the right to transactions.
func (o *tryOptions) transaction(object manifests.Object, to *trial.Options) error {
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	var t transactions.Transaction
	if err := json.Unmarshal(text, &t); err != nil {
		return terminal.OneLine(err)
	}
	withoutConditions(&t.Spec)
	for i := range t.Spec.Operations {
		operation := &t.Spec.Operations[i]
		if operation.Target != nil {
			o.namespaces = append(o.namespaces, operation.Target.Namespace)
			continue
		}
		var written metav1.PartialObjectMetadata
		if operation.Object == nil || json.Unmarshal(operation.Object.Raw, &written) != nil {
			continue // the copy refuses it
		}
		o.namespaces = append(o.namespaces, written.Namespace)
	}
	to.Grants = append(to.Grants, trial.Grant{Rules: []rbacv1.PolicyRule{{APIGroups: []string{changes.GroupVersion.Group}, Resources: []string{transactions.Resource}, Verbs: []string{"create"}}}})
	to.Change = func(ctx context.Context, config *rest.Config, answers *trial.Answers) error {
		return commitInCopy(ctx, config, &t, answers)
	}
	return nil
}

// commitInCopy commits a Transaction. It is called in the trial.
func commitInCopy(ctx context.Context, config *rest.Config, t *transactions.Transaction, answers *trial.Answers) error {
	text, err := json.Marshal(t)
	if err != nil {
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
	if err := json.Unmarshal(written, t); err != nil {
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
