package transactions

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientrest "k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Resource is the name of the resource.
const Resource = "transactions"

// Config is what the resource needs.
type Config struct {
	Store  *sqlstore.Store
	Served changes.Served
	Limits sqlstore.TransactionLimits
	// OnBehalf returns a configuration for requests to this server as the user of a request, in its transaction, and the audit id for these.
	OnBehalf func(context.Context) (*clientrest.Config, string, error)
}

// REST serves the resource transactions.
type REST struct {
	changes.Questions[Transaction, *Transaction]
	Config
	opened opened
}

// running is how many transactions run at once.
const running = 16

// NewREST returns the resource.
func NewREST(c Config) *REST {
	r := &REST{Config: c}
	r.Questions = changes.Questions[Transaction, *Transaction]{
		Singular: "transaction",
		Admit:    changes.Slots(running, "too many transactions are running"),
		Answer:   r.answer,
	}
	return r
}

// CreatesInNamespaces implements handlers.CreaterInNamespaces, for those who have the right in one namespace only.
func (*REST) CreatesInNamespaces() {}

// answer runs a transaction.
func (r *REST) answer(ctx context.Context, t *Transaction, options *metav1.CreateOptions) error {
	if t.Name == "" {
		prefix := t.GenerateName
		if prefix == "" {
			prefix = "transaction-"
		}
		t.Name = prefix + utilrand.String(10)
	}
	if problems := apimachineryvalidation.NameIsDNSSubdomain(t.Name, false); len(problems) > 0 {
		return apierrors.NewInvalid(kind, t.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), t.Name, problems[0])})
	}
	if t.Spec.Stage != "" {
		return r.stage(ctx, t, request.NamespaceValue(ctx), len(options.DryRun) > 0)
	}
	return r.run(ctx, t, request.NamespaceValue(ctx), len(options.DryRun) > 0)
}

// record returns the record of a transaction, nil if there is none.
func (r *REST) record(ctx context.Context, name string) (*sqlstore.Record, error) {
	found, _, err := r.Store.Get(ctx, sqlstore.Transactions, name)
	return found, apistorage.ClientError(err)
}

// Get implements rest.Getter: it returns what became of a transaction of the user.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if caller, ok := request.UserFrom(ctx); ok {
		if found, done, err := r.opened.of(name, caller.GetName()); err == nil {
			defer done()
			t := &Transaction{Status: found.status}
			t.Name = name
			return t, nil
		}
	}
	found, err := r.record(ctx, name)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	var stored record
	if err := json.Unmarshal(found.Value, &stored); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if caller, ok := request.UserFrom(ctx); !ok || caller.GetName() != stored.Status.User {
		return nil, apierrors.NewNotFound(resource, name)
	}
	t := &Transaction{Status: stored.Status}
	t.Name, t.UID, t.CreationTimestamp = name, types.UID(stored.Status.AuditID), *stored.Status.Time
	return t, t.Status.committed(found.Revision, found.Revision+found.Rows(), stored.Rows)
}
