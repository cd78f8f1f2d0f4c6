package check

import (
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sqube/sqube/test/robustness/history"
)

// settled is an operation, with what the rest of the history adds to what the client knows.
type settled struct {
	*history.Operation
	outcome history.Outcome
	object  history.Object
	until   time.Duration // the latest time at which it took effect
	maybe   bool          // it may have had no effect
	// deletes are the versions of the deletions by UID. A delete with an unknown outcome may have made only those in open,
	// unless open is nil.
	deletes map[string]uint64
	open    map[string]bool
}

// object is the state of the model: one object, or its absence. A version of 0 and a UID of "" are not known.
type object struct {
	exists    bool
	uid, mark string
	version   uint64
}

// register is the model of one object.
var register = porcupine.Model{
	Init: func() any { return object{} },
	Step: func(state, input, _ any) (bool, any) {
		s, o := input.(*settled), state.(object)
		if s.maybe && !s.fits(o) {
			return true, o
		}
		return s.step(o)
	},
}

// matches reports whether the object meets the preconditions of the operation.
func (s *settled) matches(o object) bool {
	return (s.IfVersion == 0 || o.version == 0 || s.IfVersion == o.version) && (s.IfUID == "" || o.uid == "" || s.IfUID == o.uid)
}

// fits reports whether the operation can be done on the object.
func (s *settled) fits(o object) bool {
	switch s.Verb {
	case history.Create:
		return !o.exists
	case history.Apply:
		return true
	case history.Delete:
		return o.exists && s.matches(o) && (s.open == nil || o.uid == "" || s.open[o.uid])
	default:
		return o.exists && s.matches(o)
	}
}

// step reports whether the operation can get its response if the object is o, and returns the resulting object.
func (s *settled) step(o object) (bool, object) {
	conditional := s.IfVersion != 0 || s.IfUID != ""
	switch s.outcome {
	case history.Absent:
		return !o.exists, o
	case history.Exists:
		return o.exists || s.Verb == history.Apply, o
	case history.Conflict:
		// Without a precondition, a conflict means that other writers were faster at every retry.
		return !conditional || !o.exists || o.version == 0 || o.uid == "" || !s.matches(o), o
	}
	if s.Verb == history.Get {
		same := o.exists && o.mark == s.object.Mark && (o.version == 0 || o.version == s.object.Version) && (o.uid == "" || o.uid == s.object.UID)
		return same, object{true, s.object.UID, s.object.Mark, s.object.Version}
	}
	if !s.fits(o) {
		return false, o
	}
	if s.object.Version != 0 && s.object.Version <= o.version {
		return false, o
	}
	known := o.uid != "" && s.object.UID != ""
	if s.Verb == history.Delete {
		return !known || o.uid == s.object.UID, object{version: max(o.version, s.deletes[o.uid])}
	}
	if o.exists && known && o.uid != s.object.UID {
		return false, o
	}
	return true, object{true, s.object.UID, s.Mark, s.object.Version}
}
