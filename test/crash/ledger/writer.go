package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// changeAnnotation numbers the changes of a Writer, by which it recognises its own after an answer was lost.
const changeAnnotation = "ledger/change"

// retryPause is how long a Writer leaves alone a server that does not answer. Nothing tells a client when it is back.
const retryPause = 10 * time.Millisecond

// changeTimeout bounds the time until a change is acknowledged, a restart of the server included.
const changeTimeout = 30 * time.Second

// Writer makes changes, one after the other, to objects that nobody else writes. It is for one goroutine.
type Writer struct {
	client dynamic.Interface
	ledger *Ledger
	name   string
	kinds  []Kind
	change int // the number of the last change
	object *unstructured.Unstructured
}

// NewWriter returns a Writer of objects of the kinds, whose names begin with its own.
func (l *Ledger) NewWriter(c dynamic.Interface, name string, kinds ...Kind) *Writer {
	return &Writer{client: c, ledger: l, name: name, kinds: kinds}
}

// objectChanges is how many changes a Writer makes to one object before it begins the next.
const objectChanges = 6

// Step makes the next change: six to an object, of which the last deletes every second one that can be, then the next
// object, of the next kind. It returns once the change is acknowledged, however often it has to ask. An error says that
// the server has broken a promise, or that ctx has ended.
func (w *Writer) Step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	n := w.change / objectChanges
	kind := w.kinds[n%len(w.kinds)]
	name := fmt.Sprintf("%s-%04d", w.name, n)
	round := w.change % objectChanges
	w.change++
	switch {
	case round == 0:
		return w.create(ctx, kind, name)
	case round == objectChanges-1 && kind.Deletable && n/len(w.kinds)%2 == 0:
		return w.delete(ctx, kind, name)
	default:
		return w.update(ctx, kind, name)
	}
}

// Last creates one more object of the kind and returns its version. Whoever has seen it has seen every change that was
// acknowledged before.
func (w *Writer) Last(ctx context.Context, kind Kind) (uint64, error) {
	w.change++
	if err := w.create(ctx, kind, fmt.Sprintf("%s-last-%d", w.name, w.change)); err != nil {
		return 0, err
	}
	return Version(w.object.GetResourceVersion())
}

func (w *Writer) create(ctx context.Context, kind Kind, name string) error {
	object := kind.object(name)
	w.mark(object)
	return w.put(ctx, kind, name, apierrors.IsAlreadyExists, func() (*unstructured.Unstructured, error) {
		return kind.client(w.client).Create(ctx, object, metav1.CreateOptions{})
	})
}

func (w *Writer) update(ctx context.Context, kind Kind, name string) error {
	object := w.object.DeepCopy()
	w.mark(object)
	return w.put(ctx, kind, name, apierrors.IsConflict, func() (*unstructured.Unstructured, error) {
		return kind.client(w.client).Update(ctx, object, metav1.UpdateOptions{})
	})
}

// mark writes the change's number into the object.
func (w *Writer) mark(object *unstructured.Unstructured) {
	object.SetAnnotations(map[string]string{changeAnnotation: strconv.Itoa(w.change)})
}

// put repeats a create or an update until it is acknowledged. A refusal after a lost answer may come from the change
// itself, which a look at the object tells.
func (w *Writer) put(ctx context.Context, kind Kind, name string, refused func(error) bool, write func() (*unstructured.Unstructured, error)) error {
	floor := w.ledger.floor()
	stored, uncertain, err := w.persist(ctx, write)
	if err != nil && uncertain && refused(err) {
		stored, _, err = w.persist(ctx, func() (*unstructured.Unstructured, error) {
			return kind.client(w.client).Get(ctx, name, metav1.GetOptions{})
		})
		if err == nil && stored.GetAnnotations()[changeAnnotation] != strconv.Itoa(w.change) {
			err = fmt.Errorf("an acknowledged write was lost, since the object is at change %q", stored.GetAnnotations()[changeAnnotation])
		}
	}
	if err != nil {
		return fmt.Errorf("change %d of %s: %w", w.change, kind.key(name), err)
	}
	version, err := Version(stored.GetResourceVersion())
	if err != nil {
		return err
	}
	w.object = stored
	return w.ledger.acknowledge(kind.key(name), version, floor)
}

func (w *Writer) delete(ctx context.Context, kind Kind, name string) error {
	version, now := w.object.GetResourceVersion(), int64(0)
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}, GracePeriodSeconds: &now}
	_, uncertain, err := w.persist(ctx, func() (*unstructured.Unstructured, error) {
		return nil, kind.client(w.client).Delete(ctx, name, options)
	})
	if err != nil && !(uncertain && apierrors.IsNotFound(err)) {
		return fmt.Errorf("change %d, deletion of %s: %w", w.change, kind.key(name), err)
	}
	w.ledger.acknowledgeDelete(kind.key(name))
	return nil
}

// persist repeats a request until the server has answered it. It tells whether an answer was lost before, in which case
// the request may have had its effect without being acknowledged.
func (w *Writer) persist(ctx context.Context, request func() (*unstructured.Unstructured, error)) (_ *unstructured.Unstructured, uncertain bool, _ error) {
	for {
		object, err := request()
		if err == nil || !isTransient(err) {
			return object, uncertain, err
		}
		uncertain = true
		select {
		case <-ctx.Done():
			return nil, uncertain, errors.Join(ctx.Err(), err)
		case <-time.After(retryPause):
		}
	}
}

// isTransient tells whether a request is to be repeated: its connection failed, or the server said that it was starting
// or ending.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}
