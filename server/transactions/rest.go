package transactions

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	clientrest "k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/gate"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Resource is the name of the resource.
const Resource = "transactions"

// Config is what the resource needs.
type Config struct {
	Store *sqlstore.Store
	// Client is that of the server itself.
	Client kubernetes.Interface
	Served changes.Served
	// Authorizer decides who may make transactions in the whole cluster, and who may confirm those of others.
	Authorizer authorizer.Authorizer
	Options    *Options
	// OnBehalf returns a configuration for requests to this server as the user of a request, and the audit id for these.
	OnBehalf func(context.Context) (*clientrest.Config, string, error)
}

// REST serves the resource transactions.
type REST struct {
	changes.Questions[Transaction, *Transaction]
	Config
	opened  opened
	answers *apistorage.Budget
}

// budgets is how many times the bytes of one transaction all together may take in memory, for their bodies and for their answers.
const budgets = 4

// NewREST returns the resource.
func NewREST(c Config) *REST {
	r := &REST{Config: c, answers: apistorage.NewBudget(budgets * int(c.Options.MaxBytes.Value()))}
	admitted := gate.New("transaction", gate.Limits{Anyones: 12, Reserved: 4, Each: 8, Waiting: 100})
	r.Questions = changes.Questions[Transaction, *Transaction]{
		Singular: "transaction",
		Admit:    func(ctx context.Context) (func(), error) { return admitted.Admit(ctx, c.Authorizer, Resource) },
		Answer:   r.answer,
	}
	return r
}

// MaxBody implements handlers.LargeBodies: the objects of a transaction stay as they were sent until each is decoded by its operation.
func (r *REST) MaxBody() (bytes, together int64) {
	return r.Options.MaxBytes.Value(), budgets * r.Options.MaxBytes.Value()
}

// CreatesInNamespaces implements handlers.CreaterInNamespaces, for those who have the right in one namespace only.
func (*REST) CreatesInNamespaces() {}

// answer runs a transaction.
func (r *REST) answer(ctx context.Context, t *Transaction, options *metav1.CreateOptions) error {
	given := t.Name != ""
	if !given {
		prefix := t.GenerateName
		if prefix == "" {
			prefix = "transaction-"
		}
		t.Name = prefix + utilrand.String(10)
	}
	if problems := apimachineryvalidation.NameIsDNSSubdomain(t.Name, false); len(problems) > 0 {
		return apierrors.NewInvalid(kind, t.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), t.Name, problems[0])})
	}
	if given {
		if err := r.unused(ctx, t.Name); err != nil {
			return err
		}
	}
	if t.Spec.Stage != "" {
		return r.stage(ctx, t, request.NamespaceValue(ctx), len(options.DryRun) > 0)
	}
	return r.run(ctx, t, request.NamespaceValue(ctx), len(options.DryRun) > 0)
}

// unused returns an error if there is a record of a transaction with that name, whoever has made it.
func (r *REST) unused(ctx context.Context, name string) error {
	known, err := r.record(ctx, name)
	if err != nil || known == nil {
		return err
	}
	used := apierrors.NewAlreadyExists(resource, name)
	used.ErrStatus.Message += fmt.Sprintf(": a name can be used once in %d hours; kubectl get transaction %s says what became of yours", kept/time.Hour, name)
	return used
}

// record returns the record of a transaction, nil if there is none.
func (r *REST) record(ctx context.Context, name string) (*sqlstore.Record, error) {
	found, _, err := r.Store.Get(ctx, sqlstore.Transactions, name)
	return found, apistorage.ClientError(err)
}

// Get implements rest.Getter: it returns what became of a transaction of the user, or of others for those who may confirm these.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if caller, ok := request.UserFrom(ctx); ok {
		if found, done, err := r.opened.of(name, caller.GetName()); err == nil {
			defer done()
			t := &Transaction{Status: found.status}
			t.Name = name
			return t, nil
		}
	}
	stored, err := r.load(ctx, name)
	if err != nil {
		return nil, err
	}
	if allowed, err := r.concerns(ctx, stored); err != nil || !allowed {
		return nil, cmp.Or(err, error(apierrors.NewNotFound(resource, name)))
	}
	return stored.transaction()
}
