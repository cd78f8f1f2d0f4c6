package server

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/server/undo"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// knownHistory is what a user may know of history.
type knownHistory struct {
	base       *base
	authorizer authorizer.Authorizer
	user       user.Info
}

func (h knownHistory) Changes(ctx context.Context, q undo.Query, yield func(*undo.Change) error) error {
	allowed := map[[4]string]bool{}
	return h.base.store.TemporaryChanges(ctx, q.Group, q.Resource, q.Namespace, q.Name, q.After, q.Before, func(c *sqlstore.TemporaryChange) error {
		resource := schema.GroupResource{Group: c.Group, Resource: c.Resource}
		if c.UID == "" {
			return nil
		}
		k := [4]string{c.Group, c.Resource, c.Namespace, c.Name}
		ok, known := allowed[k]
		if !known {
			decision, _, _ := h.authorizer.Authorize(ctx, authorizer.AttributesRecord{User: h.user, Verb: "get", APIGroup: c.Group, Resource: c.Resource, Namespace: c.Namespace, Name: c.Name, APIVersion: "*", ResourceRequest: true})
			ok = decision == authorizer.DecisionAllow
			allowed[k] = ok
		}
		if !ok {
			return nil
		}
		change := &undo.Change{
			Revision: c.ID, Operation: undo.Operation(c.Operation), Group: c.Group, Resource: c.Resource, Namespace: c.Namespace, Name: c.Name,
			UID: c.UID, User: c.User, Manager: c.FieldManager, Written: time.UnixMilli(c.WrittenAt),
		}
		for value, to := range map[*[]byte]*[]byte{&c.Previous: &change.Before, &c.Value: &change.After} {
			if len(*value) == 0 {
				continue
			}
			var err error
			if *to, _, err = apistorage.Decrypt(ctx, h.base.encryption.Transformer(resource), *value, resources.KeyPrefix(resource)+"/"+c.Key); err != nil {
				return err
			}
		}
		return yield(change)
	})
}
