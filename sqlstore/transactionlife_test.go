package sqlstore

import (
	"slices"
	"testing"
)

// TestTransactionEnds checks what is called at the end of a transaction, and that its provisional revisions are no longer anybody's.
func TestTransactionEnds(t *testing.T) {
	for outcome, want := range map[Outcome][]string{Committed: {"first", "second", "late"}, Refused: {"second", "first", "late"}, Unknown: {"second", "first", "late"}} {
		one, other := &Transaction{}, &Transaction{}
		one.begin()
		other.begin()
		var got []string
		note := func(name string) func(Outcome) {
			return func(became Outcome) {
				if became != outcome {
					t.Errorf("%s: at the end, it is %s", outcome, became)
				}
				got = append(got, name)
			}
		}
		one.AtEnd(note("first"))
		one.AtEnd(note("second"))
		if outcome != Refused {
			one.life.became(outcome)
		}
		revision := one.revisions.Add(1)
		if TransactionOf(revision) != one || TransactionOf(other.revisions.Add(1)) != other || !IsProvisional(revision) || TransactionOf(7) != nil {
			t.Errorf("the transaction of %d is not found", revision)
		}
		one.End()
		one.AtEnd(note("late"))
		if TransactionOf(revision) != nil || !slices.Equal(got, want) {
			t.Errorf("%s: at the end, %v are called, want %v", outcome, got, want)
		}
		other.End()
	}
}
