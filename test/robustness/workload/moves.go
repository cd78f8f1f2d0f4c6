package workload

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/sqube/sqube/test/robustness/check"
	"github.com/sqube/sqube/test/robustness/history"
)

const (
	historyGroup = "/apis/history.sqube.io/v1alpha1"
	transactions = historyGroup + "/transactions"
)

// hasTransactions reports whether all servers have transactions, which those of an earlier version may not.
func (w *Workload) hasTransactions() (bool, error) {
	for server := range w.configs {
		var served struct{ Resources []struct{ Name string } }
		if err := w.last.send(server, http.MethodGet, historyGroup, "", nil, &served); err != nil {
			return false, err
		}
		if !slices.ContainsFunc(served.Resources, func(r struct{ Name string }) bool { return r.Name == "transactions" }) {
			return false, nil
		}
	}
	return true, nil
}

// transaction is a Transaction that a client makes, and the operations that it has.
type transaction struct {
	*client
	name       string
	server     int
	operations []*history.Operation
	request    []any
}

func (c *client) newTransaction() *transaction {
	c.transactions++
	return &transaction{client: c, name: fmt.Sprintf("move-%d-%d", c.id, c.transactions), server: c.anywhere()}
}

// write adds the creation of an account, or an update of the version that was read.
func (t *transaction) write(in collection, name string, before *history.Object, amount int) {
	verb, version := history.Create, uint64(0)
	if before != nil {
		verb, version = history.Update, before.Version
	}
	o := t.beginWrite(verb, in.key(name), t.anyGroup())
	o.Transaction, o.Server, o.IfVersion, o.Amount = t.name, t.server, version, amount
	manifest := in.manifest(o)
	manifest["metadata"].(map[string]any)["namespace"] = Namespace
	t.operations, t.request = append(t.operations, o), append(t.request, map[string]any{"verb": verb, "object": manifest})
}

// delete adds the deletion of the version of an account that was read.
func (t *transaction) delete(in collection, before history.Object) {
	o := t.begin(history.Delete, in.key(before.Name))
	o.Transaction, o.Server, o.IfUID, o.IfVersion = t.name, t.server, before.UID, before.Version
	t.operations, t.request = append(t.operations, o), append(t.request, map[string]any{
		"verb": o.Verb, "target": map[string]any{"apiVersion": in.apiVersion, "kind": in.kind, "namespace": Namespace, "name": before.Name},
		"preconditions": map[string]any{"uid": before.UID, "resourceVersion": strconv.FormatUint(before.Version, 10)},
	})
}

// answer is a Transaction as servers return it.
type answer struct {
	Status struct {
		Operations []struct{ UID, ResourceVersion string }
	}
}

// run makes the transaction, and records its operations unless nothing of it can have happened. A client that can't tell asks what has become
// of it.
func (t *transaction) run() history.Outcome {
	body := map[string]any{
		"apiVersion": "history.sqube.io/v1alpha1", "kind": "Transaction", "metadata": map[string]any{"name": t.name},
		"spec": map[string]any{"operations": t.request},
	}
	var got answer
	err := t.send(t.server, http.MethodPost, transactions, "application/json", body, &got)
	result := outcome(err)
	if result == history.Unknown && t.send(t.anywhere(), http.MethodGet, transactions+"/"+t.name, "", nil, &got) == nil {
		result = history.Done
	}
	if result != history.Done && result != history.Unknown {
		return result
	}
	if result == history.Done && len(got.Status.Operations) != len(t.operations) {
		t.refusals(fmt.Errorf("transaction %s: %d operations have the answer %+v", t.name, len(t.operations), got))
		return result
	}
	now := t.recorder.Now()
	for i, o := range slices.Backward(t.operations) {
		o.Outcome, o.Return = result, now
		if err != nil {
			o.Error = err.Error()
		}
		if result == history.Done {
			r := got.Status.Operations[i]
			o.Object.UID = r.UID
			if o.Verb != history.Delete {
				version, err := parseVersion(r.ResourceVersion)
				if err != nil {
					t.refusals(fmt.Errorf("transaction %s: %w", t.name, err))
				}
				t.within.Store(version)
				o.Object = history.Object{Name: o.Key.Name, UID: r.UID, Version: version, Mark: o.Mark, Group: o.Group, Amount: o.Amount}
			}
		}
		t.recorder.Operation(o)
	}
	return result
}

// openAccounts creates the accounts.
func (c *client) openAccounts() error {
	t := c.newTransaction()
	for _, in := range []collection{configMaps, gadgets} {
		for _, name := range check.AccountNames() {
			t.write(in, name, nil, check.Deposit)
		}
	}
	if result := t.run(); result != history.Done {
		return fmt.Errorf("the accounts can't be opened: %s", result)
	}
	return nil
}

// move moves amounts between accounts of each sort until ctx is done, in transactions that take from one and give to others.
func (c *client) move(ctx context.Context) {
	for ctx.Err() == nil {
		result := history.Unsent
		if t := c.newTransaction(); t.transfer(configMaps) && t.transfer(gadgets) {
			result = t.run()
		}
		c.rest(ctx, result == history.Unknown || result == history.Unsent)
	}
}

// transfer adds the writes that move an amount from one account to one or two others, which it reads first. It returns false if it can't.
func (t *transaction) transfer(in collection) bool {
	l := &history.List{}
	if t.list(in, l, 0) != nil {
		return false
	}
	var read []history.Object
	for _, o := range l.Pages[0].Objects {
		if slices.Contains(check.AccountNames(), o.Name) {
			read = append(read, o)
		}
	}
	t.random.Shuffle(len(read), func(i, j int) { read[i], read[j] = read[j], read[i] })
	read = read[:min(len(read), 2+t.random.IntN(2))]
	moved := t.random.IntN(5)
	for i, before := range read {
		amount := before.Amount + moved
		if i == 0 {
			amount = before.Amount - moved*(len(read)-1)
		}
		if t.chance(10) {
			t.delete(in, before)
			t.write(in, before.Name, nil, amount)
		} else {
			t.write(in, before.Name, &before, amount)
		}
	}
	return true
}
