package transaction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
)

// Client commits transactions. It is safe for concurrent use.
type Client struct {
	rest   rest.Interface
	scheme *runtime.Scheme
}

// statuses is all that answers have which are no transactions.
var statuses = func() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

// NewClient returns a client with the rights of a configuration. The scheme knows the types of objects that don't say their apiVersion and
// kind, such as k8s.io/client-go/kubernetes/scheme.Scheme; it is optional.
func NewClient(config *rest.Config, scheme *runtime.Scheme) (*Client, error) {
	own := rest.CopyConfig(config)
	own.APIPath, own.GroupVersion, own.ContentConfig = "/apis", &schema.GroupVersion{}, rest.ContentConfig{ContentType: runtime.ContentTypeJSON}
	own.NegotiatedSerializer = serializer.NewCodecFactory(statuses).WithoutConversion()
	c, err := rest.UnversionedRESTClientFor(own)
	if err != nil {
		return nil, err
	}
	return &Client{rest: c, scheme: scheme}, nil
}

// New returns an empty transaction. Its name can be used once in a day; "" for one that is unique.
func (c *Client) New(name string) *Transaction {
	if name == "" {
		name = "transaction-" + utilrand.String(10)
	}
	return &Transaction{client: c, name: name}
}

// UnknownError says that it is not known what became of a transaction: it may have been committed, or may still be.
type UnknownError struct {
	Name string // of the transaction
	Err  error  // of the last attempt
}

// Error implements error.
func (u *UnknownError) Error() string {
	return fmt.Sprintf("it is not known what became of transaction %s: %v", u.Name, u.Err)
}

// Unwrap returns the error of the last attempt.
func (u *UnknownError) Unwrap() error { return u.Err }

// After a lost answer, a transaction is sent again after firstPause, then after twice the time, up to longestPause.
const (
	attempts     = 10
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// Commit has the server run the operations and commit what they write. After an error that is no UnknownError, nothing was written. If an
// answer is lost, it tries again for some 30 seconds, or until ctx ends.
func (t *Transaction) Commit(ctx context.Context) (*Result, error) {
	if len(t.errs) > 0 {
		return nil, errors.Join(t.errs...)
	}
	body, err := t.body()
	if err != nil {
		return nil, err
	}
	pause := firstPause
	for attempt := 1; ; attempt++ {
		done, err := t.post(ctx, body)
		if err == nil {
			return done, nil
		}
		if !lost(err) {
			if attempt > 1 { // an earlier attempt may be why this one is refused
				if done, asked := t.client.Get(ctx, t.name); asked == nil {
					return done, nil
				}
			}
			return nil, err
		}
		if attempt == attempts || ctx.Err() != nil {
			return nil, &UnknownError{t.name, err}
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return nil, &UnknownError{t.name, err}
		}
		pause = min(2*pause, longestPause)
	}
}

// body returns the JSON of the transaction.
func (t *Transaction) body() ([]byte, error) {
	sent := wire{APIVersion: apiVersion, Kind: "Transaction", Metadata: metav1.ObjectMeta{Name: t.name}, Spec: t.spec}
	if t.ConfirmWithin > 0 {
		sent.Spec.ConfirmWithin, sent.Spec.UnlessHealthy = t.ConfirmWithin.String(), t.UnlessHealthy
	}
	sent.Spec.Operations = slices.Clone(t.spec.Operations)
	for i := range sent.Spec.Operations {
		o := &sent.Spec.Operations[i]
		o.FieldManager = t.FieldManager
		if o.Verb != "delete" {
			o.FieldValidation = t.FieldValidation
		}
	}
	return json.Marshal(sent)
}

// post sends the transaction once.
func (t *Transaction) post(ctx context.Context, body []byte) (*Result, error) {
	request := t.client.rest.Post().AbsPath("/apis/"+apiVersion).NamespaceIfScoped(t.Namespace, t.Namespace != "").Resource(resource).Body(body)
	if t.DryRun {
		request.Param("dryRun", metav1.DryRunAll)
	}
	if t.FieldManager != "" {
		request.Param("fieldManager", t.FieldManager)
	}
	return resultOf(request.Do(ctx))
}

// Get returns what became of a transaction of the same user in the last day. If it is not found, nothing of it was written, unless a server is
// still working on it.
func (c *Client) Get(ctx context.Context, name string) (*Result, error) {
	return resultOf(c.rest.Get().AbsPath("/apis/" + apiVersion).Resource(resource).Name(name).Do(ctx))
}

// Confirm confirms a transaction that the server would take back at its deadline. A second time changes nothing. IsConflict is true if it was
// taken back, or the deadline has passed.
func (c *Client) Confirm(ctx context.Context, name string) (*Result, error) {
	body, err := json.Marshal(wire{APIVersion: apiVersion, Kind: "Transaction"})
	if err != nil {
		return nil, err
	}
	return resultOf(c.rest.Post().AbsPath("/apis/" + apiVersion).Resource(resource).Name(name).SubResource("confirm").Body(body).Do(ctx))
}

func resultOf(r rest.Result) (*Result, error) {
	body, err := r.Raw()
	if err != nil {
		return nil, failureOf(err, body)
	}
	var answer wire
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("the answer is no transaction: %w", err)
	}
	answer.Status.Name = answer.Metadata.Name
	return &answer.Status, nil
}

// failureOf returns the error that the body of an answer is, or else err.
func failureOf(err error, body []byte) error {
	status := metav1.Status{}
	if json.Unmarshal(body, &status) == nil && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return err
}

// lost reports whether the transaction may have been committed in spite of an error.
func lost(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return !ok || status.ErrStatus.Code >= http.StatusInternalServerError && !has(err, operationCause)
}

// has reports whether an error has a cause of a type.
func has(err error, cause metav1.CauseType) bool {
	_, _, ok := find(err, cause)
	return ok
}

// OperationOf returns the index of the operation because of which a transaction was refused, and what was wrong with it.
func OperationOf(err error) (index int, message string, ok bool) { return find(err, operationCause) }

// RequirementOf returns the index of the requirement that was not met, and how.
func RequirementOf(err error) (index int, message string, ok bool) {
	return find(err, requirementCause)
}

var indexed = regexp.MustCompile(`\[(\d+)\]$`)

// find returns the cause of a type that an error has, whose field ends with an index.
func find(err error, cause metav1.CauseType) (index int, message string, ok bool) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return 0, "", false
	}
	for _, c := range status.ErrStatus.Details.Causes {
		if found := indexed.FindStringSubmatch(c.Field); c.Type == cause && found != nil {
			index, err := strconv.Atoi(found[1])
			return index, c.Message, err == nil
		}
	}
	return 0, "", false
}
