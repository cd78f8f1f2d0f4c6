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

// changeAnnotation numbers the changes of a Writer, so that it recognises its own after a response was lost.
const changeAnnotation = "ledger/change"

// retryPause is how long a Writer waits before it retries. Clients are not notified when a server is back.
const retryPause = 10 * time.Millisecond

// changeTimeout limits the time until a change is acknowledged, including a restart of the server.
const changeTimeout = 30 * time.Second

// Writer makes changes, in sequence, to its own objects. It is for one goroutine.
type Writer struct {
	client dynamic.Interface
	ledger *Ledger
	name   string
	kinds  []Kind
	change int // the number of the last change
	object *unstructured.Unstructured
}

// NewWriter returns a Writer of objects of the kinds, with the Writer's name as prefix.
func (l *Ledger) NewWriter(c dynamic.Interface, name string, kinds ...Kind) *Writer {
	return &Writer{client: c, ledger: l, name: name, kinds: kinds}
}

// objectChanges is how many changes a Writer makes to one object before it starts the next.
const objectChanges = 6

// Step makes the next change: six changes to an object, the last of which deletes every second deletable one, then the next
// object, of the next kind. It returns once the change is acknowledged, however many retries that takes. An error means that
// the server has broken a guarantee, or that ctx has ended.
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

// Last creates another object of the kind and returns its version. A watcher that has received it has received all changes
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

// put retries a create or an update until it is acknowledged. A rejection may be due to the change itself, if its response was
// lost or was a 503 after which client-go tried again, so put then reads the object.
func (w *Writer) put(ctx context.Context, kind Kind, name string, refused func(error) bool, write func() (*unstructured.Unstructured, error)) error {
	floor := w.ledger.floor()
	stored, err := w.persist(ctx, write)
	if err != nil && refused(err) {
		stored, err = w.persist(ctx, func() (*unstructured.Unstructured, error) {
			return kind.client(w.client).Get(ctx, name, metav1.GetOptions{})
		})
		if err == nil && stored.GetAnnotations()[changeAnnotation] != strconv.Itoa(w.change) {
			err = fmt.Errorf("an acknowledged write was lost: the object is at change %q", stored.GetAnnotations()[changeAnnotation])
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

// delete retries a deletion until it is acknowledged. Like put, it may be refused because the deletion has taken effect. Other
// changes show whether acknowledged writes are lost.
func (w *Writer) delete(ctx context.Context, kind Kind, name string) error {
	version, now := w.object.GetResourceVersion(), int64(0)
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}, GracePeriodSeconds: &now}
	_, err := w.persist(ctx, func() (*unstructured.Unstructured, error) {
		return nil, kind.client(w.client).Delete(ctx, name, options)
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change %d, deletion of %s: %w", w.change, kind.key(name), err)
	}
	w.ledger.acknowledgeDelete(kind.key(name))
	return nil
}

// persist retries a request until the server has responded.
func (w *Writer) persist(ctx context.Context, request func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	for {
		object, err := request()
		if err == nil || !isTransient(err) {
			return object, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(retryPause):
		}
	}
}

// isTransient reports whether a request should be retried: its connection failed, or the server was starting or stopping.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}
