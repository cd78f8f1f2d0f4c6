package ledger

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// Key identifies an object: its resource in the plural and its name.
type Key struct{ Resource, Name string }

func (k Key) String() string { return k.Resource + "/" + k.Name }

// History is what the server has acknowledged for one object.
type History struct {
	// Versions are the resourceVersions of its creation and its updates, in the order in which they were made.
	Versions []uint64
	// Deleted is set if its deletion was acknowledged, too.
	Deleted bool
}

// Last returns the version that the object has, or had before it was deleted.
func (h History) Last() uint64 { return h.Versions[len(h.Versions)-1] }

// Ledger has the histories of all objects. It is safe for concurrent use.
type Ledger struct {
	mu        sync.Mutex
	histories map[Key]History
	handedOut map[uint64]Key // every version, and the object that got it
	highest   uint64
	changes   int
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{histories: map[Key]History{}, handedOut: map[uint64]Key{}}
}

// Changes returns how many changes were acknowledged.
func (l *Ledger) Changes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes
}

// floor returns the highest version acknowledged so far. All writes from now on must get a higher one.
func (l *Ledger) floor() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.highest
}

// acknowledge records the version of a create or an update that began at the given floor. It fails if the version is not above
// the floor, or was handed out before.
func (l *Ledger) acknowledge(key Key, version, floor uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if version <= floor {
		return fmt.Errorf("%s got the resourceVersion %d, after %d had been handed out", key, version, floor)
	}
	if other, taken := l.handedOut[version]; taken {
		return fmt.Errorf("%s got the resourceVersion %d of %s", key, version, other)
	}
	h := l.histories[key]
	h.Versions = append(h.Versions, version)
	l.histories[key], l.handedOut[version] = h, key
	l.highest = max(l.highest, version)
	l.changes++
	return nil
}

// acknowledgeDelete records a deletion.
func (l *Ledger) acknowledgeDelete(key Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.histories[key]
	h.Deleted = true
	l.histories[key] = h
	l.changes++
}

// of returns the histories of a kind's objects. It must not be called while Writers run.
func (l *Ledger) of(kind Kind) map[Key]History {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[Key]History{}
	for key, h := range l.histories {
		if key.Resource == kind.Resource.Resource {
			found[key] = h
		}
	}
	return found
}

// CheckStored compares what the server lists with the ledger: every object in its last version, and no others. No Writer may
// run meanwhile.
func (l *Ledger) CheckStored(ctx context.Context, c dynamic.Interface, kind Kind) error {
	list, err := kind.client(c).List(ctx, metav1.ListOptions{LabelSelector: Selector})
	if err != nil {
		return err
	}
	stored := map[Key]uint64{}
	for _, item := range list.Items {
		version, err := Version(item.GetResourceVersion())
		if err != nil {
			return err
		}
		stored[kind.key(item.GetName())] = version
	}
	for key, h := range l.of(kind) {
		version, exists := stored[key]
		delete(stored, key)
		switch {
		case exists && h.Deleted:
			return fmt.Errorf("%s exists in version %d, although its deletion was acknowledged", key, version)
		case !exists && !h.Deleted:
			return fmt.Errorf("%s is lost; its last version was %d", key, h.Last())
		case exists && version != h.Last():
			return fmt.Errorf("%s exists in version %d; the last acknowledged one is %d", key, version, h.Last())
		}
	}
	for key, version := range stored {
		return fmt.Errorf("%s exists in version %d, but was never acknowledged", key, version)
	}
	return nil
}

// Version parses a resourceVersion. The API promises that they can be compared as numbers (https://kep.k8s.io/5504).
func Version(resourceVersion string) (uint64, error) {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil || version == 0 {
		return 0, fmt.Errorf("%q is not a resourceVersion", resourceVersion)
	}
	return version, nil
}
