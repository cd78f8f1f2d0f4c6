package ledger

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/watch"
)

// Event is one change that was observed.
type Event struct {
	Type    watch.EventType
	Key     Key
	Version uint64
}

// byKey groups events by object, in order.
func byKey(events []Event) map[Key][]Event {
	sorted := map[Key][]Event{}
	for _, e := range events {
		sorted[e.Key] = append(sorted[e.Key], e)
	}
	return sorted
}

// CheckEvents checks that a watch has received each change of the kind exactly once, and in the order of its versions.
func (l *Ledger) CheckEvents(kind Kind, events []Event) error {
	for i := 1; i < len(events); i++ {
		if events[i].Version <= events[i-1].Version {
			return fmt.Errorf("%v came after %v", events[i], events[i-1])
		}
	}
	return l.compare(kind, events, func(key Key, h History, seen []Event) error {
		expected := make([]Event, 0, len(h.Versions)+1)
		for i, version := range h.Versions {
			e := Event{watch.Modified, key, version}
			if i == 0 {
				e.Type = watch.Added
			}
			expected = append(expected, e)
		}
		if h.Deleted {
			// A deletion has its own version, which its acknowledgement does not include.
			last := Event{watch.Deleted, key, 0}
			if len(seen) > 0 {
				last.Version = seen[len(seen)-1].Version
			}
			expected = append(expected, last)
		}
		if !slices.Equal(seen, expected) {
			return fmt.Errorf("the watch received %v, not %v", seen, expected)
		}
		return nil
	})
}

// CheckInformer checks what an informer has received. Of each object, it must have received acknowledged versions, in order,
// and the last of them or the deletion. A version may be missing only because a later one had replaced it when the informer
// relisted. lists is how often it has listed; if only at its start, no version may be missing.
func (l *Ledger) CheckInformer(kind Kind, events []Event, lists int) error {
	return l.compare(kind, events, func(key Key, h History, seen []Event) error {
		deleted := len(seen) > 0 && seen[len(seen)-1].Type == watch.Deleted
		versions := versionsOf(seen)
		if h.Deleted != deleted && (len(seen) > 0 || lists <= 1) {
			return fmt.Errorf("the deletion is acknowledged: %t, seen: %t, after %v", h.Deleted, deleted, seen)
		}
		if lists <= 1 {
			if !slices.Equal(versions, h.Versions) {
				return fmt.Errorf("the informer received %v, not %v", versions, h.Versions)
			}
			return nil
		}
		if !isSubsequence(versions, h.Versions) {
			return fmt.Errorf("the informer received %v, which is out of the order of %v", versions, h.Versions)
		}
		if !h.Deleted && (len(versions) == 0 || versions[len(versions)-1] != h.Last()) {
			return fmt.Errorf("the informer received %v, and not the last of %v", versions, h.Versions)
		}
		return nil
	})
}

// compare runs check for each object of the kind with its received events, and fails if there are events of other objects.
func (l *Ledger) compare(kind Kind, events []Event, check func(Key, History, []Event) error) error {
	seen := byKey(events)
	for key, h := range l.of(kind) {
		if err := check(key, h, seen[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		delete(seen, key)
	}
	for key, events := range seen {
		return fmt.Errorf("%s: received without any acknowledged change: %v", key, events)
	}
	return nil
}

// versionsOf returns the received versions of an object, without duplicates from relists, and without that of its deletion.
func versionsOf(seen []Event) []uint64 {
	var versions []uint64
	for _, e := range seen {
		if e.Type != watch.Deleted {
			versions = append(versions, e.Version)
		}
	}
	return slices.Compact(versions)
}

// isSubsequence reports whether part is a subsequence of whole.
func isSubsequence(part, whole []uint64) bool {
	for _, version := range part {
		i := slices.Index(whole, version)
		if i < 0 {
			return false
		}
		whole = whole[i+1:]
	}
	return true
}
