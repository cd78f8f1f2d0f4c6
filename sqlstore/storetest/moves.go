package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/test/harness"
)

// accounts are objects between which transactions move amounts, so that their sum is always the same. They fill more than one read of
// the log, and more than one page.
const (
	accounts = 700
	deposit  = 10
)

type account struct {
	Amount  int    `json:"amount"`
	Padding string `json:"padding,omitempty"`
}

func amountOf(t testing.TB, value []byte) int {
	var a account
	if err := json.Unmarshal(value, &a); err != nil {
		t.Errorf("%s: %v", value, err)
	}
	return a.Amount
}

func accountKey(i int) string { return fmt.Sprintf("account-%03d", i) }

// bank moves amounts between accounts by transactions.
type bank struct {
	*sqlstore.Store
	random *rand.Rand
	moved  int
}

// open creates the accounts, in one transaction.
func (b *bank) open(t testing.TB) {
	tx, ctx := begin(t, b.Store, "open")
	for i := range accounts {
		_, err := b.Write(ctx, put(accountKey(i), b.value(deposit, 10), nil))
		harness.Must(t, err)
	}
	_, err := commit(ctx, tx)
	harness.Must(t, err)
}

func (b *bank) value(amount, padding int) string {
	text, _ := json.Marshal(account{amount, strings.Repeat("x", padding)})
	return string(text)
}

// move moves amounts among so many accounts in one transaction: one gives to all others, which are replaced or deleted and made again. The
// error is that of the commit.
func (b *bank) move(t testing.TB, s *sqlstore.Store, n, padding int) error {
	b.moved++
	name := fmt.Sprintf("move-%d-%d", b.random.Uint64(), b.moved)
	tx, ctx := begin(t, s, name)
	chosen := b.random.Perm(accounts)[:n]
	for i, account := range chosen {
		r, _, err := s.Get(ctx, things, accountKey(account))
		harness.Must(t, err)
		amount := amountOf(t, r.Value)
		if i == 0 {
			amount -= n - 1
		} else {
			amount++
		}
		if b.random.IntN(4) == 0 {
			_, err = s.Write(ctx, remove(r))
			harness.Must(t, err)
			r = nil
		}
		_, err = s.Write(ctx, put(accountKey(account), b.value(amount, padding), r))
		harness.Must(t, err)
	}
	_, err := commit(ctx, tx)
	return err
}

// sum checks that records are a whole state.
func sum(t testing.TB, what string, all []*sqlstore.Record) {
	t.Helper()
	total, n := 0, 0
	for _, r := range all {
		if strings.HasPrefix(r.Key, "account-") {
			total += amountOf(t, r.Value)
			n++
		}
	}
	if total != accounts*deposit || n != accounts {
		t.Errorf("%s: the sum of %d accounts is %d, want %d of %d", what, n, total, accounts*deposit, accounts)
	}
}

// testTransactionsAreWhole moves amounts between objects, by transactions that are larger than one read of the log, while others list the
// objects, page by page, at any revision, and watch them. Nobody sees a part of a transaction, on any server.
func testTransactionsAreWhole(t *testing.T, open Opener) {
	again := open(t)
	engine := OpenEngine(t, again)
	b := &bank{Store: Start(t, engine, sqlstore.Options{}), random: rand.New(rand.NewPCG(17, 18))}
	servers := []*sqlstore.Store{b.Store, secondStore(t, again, b.Store)}
	from := revision(t, b.Store).Revision
	b.open(t)
	ended := make(chan struct{})
	var readers sync.WaitGroup
	for i, s := range servers {
		harness.Must(t, s.Await(t.Context(), revision(t, b.Store).Revision))
		readers.Go(func() { readWhole(t, s, rand.New(rand.NewPCG(19, uint64(i))), ended) })
		readers.Go(func() { watchWhole(t, s, ended) })
	}
	for i := range 40 {
		n, padding := 2+b.random.IntN(30), 10
		if i%12 == 5 {
			n, padding = 300+b.random.IntN(accounts-300), 100
		}
		if i == 20 {
			n, padding = 300, 100<<10 // more than one read of the log has of bytes
		}
		err := b.move(t, servers[b.random.IntN(len(servers))], n, padding)
		harness.Must(t, err)
		if i%5 == 0 {
			must(t, b.Store, put(fmt.Sprintf("other-%d", i), `{}`, nil))
		}
	}
	close(ended)
	readers.Wait()
	last := revision(t, b.Store).Revision
	checkStates(t, b.Store, from+accounts+1, last)
	Sound(t, engine)
}

// checkStates reads the state at each of some revisions, as a client does that names it.
func checkStates(t *testing.T, s *sqlstore.Store, from, last int64) {
	t.Helper()
	for at := from; at <= last; at += 1 + (last-from)/17 {
		whole, err := s.WholeTransaction(t.Context(), at)
		harness.Must(t, err)
		all, _, err := records(t.Context(), s, sqlstore.Query{Resource: things, Revision: whole})
		harness.Must(t, err)
		sum(t, fmt.Sprintf("at revision %d, which stands for %d", at, whole), all)
	}
}

// readWhole keeps listing the accounts, and reading them at recent revisions.
func readWhole(t *testing.T, s *sqlstore.Store, random *rand.Rand, ended <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-ended:
			if n < 5 {
				t.Errorf("the accounts were listed only %d times", n)
			}
			return
		default:
		}
		q := sqlstore.Query{Resource: things, Limit: 0}
		if random.IntN(3) == 0 {
			q.Limit = 100
		}
		var all []*sqlstore.Record
		for more := true; more; {
			page, err := s.Page(t.Context(), q)
			if err != nil {
				t.Error(err)
				return
			}
			all, more = append(all, page.Records...), page.More
			if q.Revision == 0 {
				q.Revision = page.Revision
			}
			if more {
				q.After = all[len(all)-1].Key
			}
		}
		sum(t, fmt.Sprintf("a list in pages of %d", q.Limit), all)
		if first, last, err := s.TransactionAt(t.Context(), q.Revision); err != nil || last != q.Revision {
			t.Errorf("a list is at revision %d, within the transaction from %d to %d, %v", q.Revision, first, last, err)
		}
	}
}

// watchWhole watches the accounts: whenever the watch has told all up to a revision, what it has told is a whole state.
func watchWhole(t *testing.T, s *sqlstore.Store, ended <-chan struct{}) {
	f := s.Follow(t.Context())
	defer f.Close()
	sub := f.Subscribe(things, "")
	state, told := map[string]*sqlstore.Record{}, 0
	all, _, err := records(t.Context(), s, sqlstore.Query{Resource: things, Revision: sub.Start})
	if err != nil {
		t.Error(err)
		return
	}
	for _, r := range all {
		state[r.Key] = r
	}
	for {
		select {
		case <-ended:
			if told == 0 {
				t.Error("the watch was never told of all")
			}
			return
		case <-sub.Ready():
		}
		changes, err := sub.Drain()
		if err != nil {
			t.Error(err)
			return
		}
		for _, c := range changes {
			if state[c.Record.Key] = &c.Record; c.Operation == dialect.Delete {
				delete(state, c.Record.Key)
			}
			f.Done(c)
		}
		through, current := sub.Progress()
		if !current || through < newest(state) { // a part of a transaction has been told, and no bookmark would be sent
			continue
		}
		told++
		var now []*sqlstore.Record
		for _, r := range state {
			now = append(now, r)
		}
		sum(t, fmt.Sprintf("a watch up to %d", through), now)
	}
}

func newest(state map[string]*sqlstore.Record) (revision int64) {
	for _, r := range state {
		revision = max(revision, r.Revision)
	}
	return revision
}

// testTransactionsInHistory reads the states around transactions once their versions have left the log, and some have given up their values.
func testTransactionsInHistory(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	b := &bank{Store: Start(t, engine, keeping), random: rand.New(rand.NewPCG(20, 21))}
	b.open(t)
	from := revision(t, b.Store).Revision
	for range 6 {
		harness.Must(t, b.move(t, b.Store, 20, 10))
	}
	tx, ctx := begin(t, b.Store, "short-lived")
	for i := range 3 {
		r, _, err := b.Get(ctx, things, accountKey(i))
		harness.Must(t, err)
		_, err = b.Write(ctx, put(r.Key, string(r.Value), r))
		harness.Must(t, err)
	}
	record, err := commit(ctx, tx)
	harness.Must(t, err)
	harness.Must(t, b.move(t, b.Store, accounts, 10)) // replaces all
	last := revision(t, b.Store).Revision
	found, _, err := b.Get(t.Context(), sqlstore.Transactions, "short-lived")
	harness.Must(t, err)
	gone := &sqlstore.Write{Operation: dialect.Delete, Resource: sqlstore.Transactions, Key: found.Key, Name: found.Key, Previous: found, Labels: "{}", Fields: "{}"}
	must(t, b.Store, gone)

	rows := func() {
		t.Helper()
		if first, end, err := b.RowsOf(t.Context(), "short-lived"); err != nil || first != record || end != record+3 {
			t.Errorf("the transaction with the record %d is known from %d to %d, %v", record, first, end, err)
		}
	}
	checkStates(t, b.Store, from, last)
	for _, upTo := range []int64{record + 1, record + 4, revision(t, b.Store).Revision} { // within it, too
		harness.Must(t, b.Compact(t.Context(), upTo))
		checkWhole(t, b.Store, record, record+3)
		rows()
		checkStates(t, b.Store, from, last)
	}
	err = engine.EditPast(t.Context(), "api_group = ? AND resource = ?", []any{history.Transactions.Group, history.Transactions.Name}, func(blocks []*dialect.Block) (_ []int64, put []*dialect.Block, err error) {
		for _, block := range blocks {
			bare, err := history.Bare(block, nil)
			if err != nil {
				return nil, nil, err
			}
			put = append(put, bare)
		}
		return nil, put, nil
	})
	harness.Must(t, err)
	checkWhole(t, b.Store, record, record+3)
	rows()
	if first, end, err := b.RowsOf(t.Context(), "unknown"); err != nil || first != 0 || end != 0 {
		t.Errorf("a transaction that never was is known from %d to %d, %v", first, end, err)
	}
	tx, ctx = begin(t, b.Store, "short-lived") // the name is free again
	if record, err = commit(ctx, tx); err != nil {
		t.Fatal(err)
	}
	if first, end, err := b.RowsOf(t.Context(), "short-lived"); err != nil || first != record || end != record {
		t.Errorf("the second transaction of the name, %d, is known from %d to %d, %v", record, first, end, err)
	}
}

// testAmbiguousTransactions makes commits of transactions fail before they do anything, or after they have taken effect. The record tells
// which, and a second attempt under the same name does nothing if it is there.
func testAmbiguousTransactions(t *testing.T, open Opener) {
	broken := &dialect.Error{Op: "commit", Engine: "test", Err: dialect.ErrUnavailable}
	engine := &Intercepted{Engine: OpenEngine(t, open(t))}
	s := Start(t, engine, sqlstore.Options{})
	from := revision(t, s).Revision
	watch := StartFollow(t, s, from)
	attempt := func(name string) error {
		tx, ctx := begin(t, s, name)
		for i := range 3 {
			if _, err := s.Write(ctx, put(fmt.Sprintf("%s-%d", name, i), `{}`, nil)); err != nil {
				return err
			}
		}
		_, err := commit(ctx, tx)
		return err
	}
	for i, takesEffect := range []bool{false, true} {
		name := fmt.Sprintf("tx-%d", i)
		fail := func([]dialect.Write) error { return broken }
		if takesEffect {
			engine.AfterCommit = fail
		} else {
			engine.BeforeCommit = fail
		}
		if err := attempt(name); !errors.Is(err, dialect.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		engine.BeforeCommit, engine.AfterCommit = nil, nil
		record, _, err := s.Get(t.Context(), sqlstore.Transactions, name)
		if err != nil || (record != nil) != takesEffect {
			t.Errorf("%s, which takes effect (%t), has the record %v, %v", name, takesEffect, record, err)
		}
		if err := attempt(name); takesEffect != errors.Is(err, sqlstore.ErrConflict) || !takesEffect && err != nil {
			t.Errorf("a second attempt of %s: %v", name, err)
		}
	}
	must(t, s, Last())
	var keys []string
	for _, c := range watch.Changes() {
		keys = append(keys, c.Record.Key)
	}
	if want := []string{"tx-0-0", "tx-0-1", "tx-0-2", "tx-1-0", "tx-1-1", "tx-1-2", lastKey}; !slices.Equal(keys, want) {
		t.Errorf("the watch has got %v, want %v", keys, want)
	}
	Sound(t, engine)
}
