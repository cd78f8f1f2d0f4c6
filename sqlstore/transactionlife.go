package sqlstore

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Outcome is what became of a transaction.
type Outcome string

// The outcomes.
const (
	Refused    Outcome = "refused"    // it was not committed
	Committed  Outcome = "committed"  // everything was written
	Conflicted Outcome = "conflicted" // nothing was written, since others have changed its objects
	Unknown    Outcome = "unknown"    // the commit has failed, and may have taken effect
)

// life is what others keep with a transaction, and do at its end.
type life struct {
	kept sync.Map // of *keptValue

	mu      sync.Mutex
	outcome Outcome // "" before the commit
	over    bool
	atEnd   []func(Outcome)
}

type keptValue struct {
	make  sync.Once
	value any
}

// Kept returns what the transaction keeps under a key, which create makes the first time.
func (t *Transaction) Kept(key any, create func() any) any {
	found, _ := t.life.kept.LoadOrStore(key, &keptValue{})
	kept := found.(*keptValue)
	kept.make.Do(func() { kept.value = create() })
	return kept.value
}

// AtEnd has f called when the transaction ends; at once if it has ended. The functions of a committed one are called in the order of AtEnd,
// those of others from the last to the first.
func (t *Transaction) AtEnd(f func(Outcome)) {
	t.life.mu.Lock()
	if !t.life.over {
		t.life.atEnd = append(t.life.atEnd, f)
		t.life.mu.Unlock()
		return
	}
	outcome := t.life.outcome
	t.life.mu.Unlock()
	f(outcome)
}

// became records the outcome of the commit.
func (l *life) became(outcome Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcome = outcome
}

// end calls the functions of AtEnd.
func (l *life) end() {
	l.mu.Lock()
	all, outcome := l.atEnd, l.outcome
	if outcome == "" {
		outcome = Refused
	}
	l.atEnd, l.over, l.outcome = nil, true, outcome
	l.mu.Unlock()
	if outcome != Committed {
		slices.Reverse(all)
	}
	for _, f := range all {
		f(outcome)
	}
}

// Each transaction has a block of provisional revisions, so that one tells whose it is.
const blockBits = 24

var (
	lastBlock        atomic.Int64
	openTransactions sync.Map // of *Transaction, by block
)

// begin registers the transaction with its block.
func (t *Transaction) begin() {
	block := provisional>>blockBits + lastBlock.Add(1)
	t.revisions.Store(block << blockBits)
	openTransactions.Store(block, t)
}

// TransactionOf returns the transaction, until it has ended, that has issued a provisional revision; nil for others.
func TransactionOf(revision int64) *Transaction {
	found, ok := openTransactions.Load(revision >> blockBits)
	if !ok {
		return nil
	}
	return found.(*Transaction)
}

// Object names an object.
type Object struct{ Namespace, Name string }

// Changed returns the objects of a resource that the transaction has written or deleted.
func (t *Transaction) Changed(resource Resource) []Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	var changed []Object
	for _, g := range t.order {
		if g.resource == resource {
			changed = append(changed, g.object())
		}
	}
	return changed
}

func (g *gathered) object() Object {
	if g.put != nil {
		return Object{g.put.row.Namespace, g.put.row.Name}
	}
	if g.remove != nil {
		return Object{g.remove.Namespace, g.remove.Name}
	}
	return Object{} // it was created and deleted
}
