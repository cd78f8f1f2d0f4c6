package agent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Valid is how long what was tried can be applied.
const Valid = 15 * time.Minute

// mostTrials is how many trials of a user are remembered. The oldest give way.
const mostTrials = 20

// Trial is a change that was tried.
type Trial struct {
	ID      string
	Owner   string // the user who tried it
	Hash    string // of the change
	Verdict string // in words, for the person who confirms
	Change  string // in words
	Sure    bool   // it came to rest as asked
	State   any    // what the change stands on
	Expires time.Time

	question string // of the confirmation that is under way, "" for none
}

// Trials remembers what was tried.
type Trials struct {
	mu  sync.Mutex
	all []*Trial // the oldest first
}

// Add remembers a trial, and gives it an id.
func (t *Trials) Add(trial Trial) *Trial {
	trial.ID, trial.Expires = "trial-"+rand.Text()[:12], time.Now().Add(Valid)
	t.mu.Lock()
	defer t.mu.Unlock()
	now, own := time.Now(), 0
	for i, other := range slices.Backward(t.all) {
		if other.Owner == trial.Owner {
			own++
		}
		if now.After(other.Expires) || other.Owner == trial.Owner && own >= mostTrials {
			t.all = slices.Delete(t.all, i, i+1)
		}
	}
	t.all = append(t.all, &trial)
	return &trial
}

// Of returns the trial of a user with an id, if what was tried can still be applied.
func (t *Trials) Of(id, owner string) (*Trial, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.all, func(trial *Trial) bool { return trial.ID == id && trial.Owner == owner })
	switch {
	case i < 0:
		return nil, errors.New("there is no such trial: try the change first, and give the trial that the answer names")
	case time.Now().After(t.all[i].Expires):
		return nil, fmt.Errorf("%s is more than %s old: try it again", id, Valid)
	}
	return t.all[i], nil
}

// Find is Of for a trial of a change.
func (t *Trials) Find(id, owner, hash string) (*Trial, error) {
	trial, err := t.Of(id, owner)
	if err == nil && trial.Hash != hash {
		return nil, fmt.Errorf("this is not the change that %s tried: try it first, and apply the same", id)
	}
	return trial, err
}

// Ask begins a confirmation of a trial, and returns its secret. There is one at a time.
func (t *Trials) Ask(trial *Trial) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	trial.question = rand.Text()
	return trial.question
}

// Answered reports whether an answer is to the confirmation that is under way, which ends.
func (t *Trials) Answered(trial *Trial, question string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := trial.question
	trial.question = ""
	return own != "" && own == question
}

// Remove forgets a trial, and reports whether it was still there: what was tried is applied once.
func (t *Trials) Remove(trial *Trial) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.all, trial)
	if i >= 0 {
		t.all = slices.Delete(t.all, i, i+1)
	}
	return i >= 0
}
