package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// What a kubelet does by default.
const (
	kubeletLeaseSeconds = 40               // nodeLeaseDurationSeconds
	kubeletRenew        = 10 * time.Second // a quarter of it
	kubeletReport       = 5 * time.Minute  // nodeStatusReportFrequency
	kubeletAttempts     = 5                // at a renewal or a report, before it waits for the next one
	kubeletRetry        = 50 * time.Millisecond
)

// kubelet sends what a node's kubelet sends, and runs nothing. It has a connection and an identity of its own, renews its Lease,
// reports its status, watches its Node and its Pods, reports that a Pod is running, and removes Pods that are deleted. What it
// leaves out: Events, and watches of what Pods mount and of all Services.
//
// So that a small machine can simulate thousands, it sends text that was prepared, and reads of answers and events only the fields
// that it needs.
type kubelet struct {
	*client
	name    string
	calls   *callTimes
	ledger  *ledger
	version string              // of its Lease
	running map[string]struct{} // uids of the Pods that it has reported
}

// register creates the Node and reports its status.
func (k *kubelet) register(ctx context.Context) error {
	if err := persist(ctx, func() error {
		err := k.call(ctx, "POST nodes", post("/api/v1/nodes", nodeBody(k.name)))
		if isStatus(err, http.StatusConflict) { // the answer to an earlier attempt was lost
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	return persist(ctx, func() error { return k.report(ctx) })
}

// run does what a kubelet does until the context ends. Then it returns without telling the server, as when the machine loses power.
func (k *kubelet) run(ctx context.Context) {
	var loops sync.WaitGroup
	nothing := func() {}
	loops.Go(func() { k.beat(ctx) })
	loops.Go(func() { k.follow(ctx, "/api/v1/nodes", "metadata.name="+k.name, func(seen) {}, nothing, nothing) })
	loops.Go(func() {
		k.follow(ctx, "/api/v1/pods", "spec.nodeName="+k.name, func(pod seen) { k.see(ctx, pod) }, nothing, nothing)
	})
	loops.Wait()
	clients{k.client}.close()
}

// beat renews the Lease and reports the status, each when it is due. Nodes that join together do not do so together.
func (k *kubelet) beat(ctx context.Context) {
	report := time.Now().Add(kubeletReport/2 + rand.N(kubeletReport)) // a kubelet's first delay
	for next := rand.N(kubeletRenew); wait(ctx, next) == nil; next = kubeletRenew + rand.N(kubeletRenew/25) {
		k.try(ctx, "renewing the Lease of Node "+k.name, kubeletAttempts, func() error { return k.renew(ctx) })
		if time.Now().After(report) {
			k.try(ctx, "reporting the status of Node "+k.name, kubeletAttempts, func() error { return k.report(ctx) })
			report = report.Add(kubeletReport)
		}
	}
}

// try calls do until it succeeds. After kubeletAttempts failures in sequence it records that, and after the maximum of attempts it
// gives up.
func (k *kubelet) try(ctx context.Context, what string, most int, do func() error) {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || ctx.Err() != nil {
			return
		}
		if attempt == kubeletAttempts {
			k.ledger.fail(fmt.Errorf("%s: %w", what, err))
		}
		if attempt == most || wait(ctx, kubeletRetry<<min(attempt, 7)) != nil {
			return
		}
	}
}

// renew renews the Lease, or creates it.
func (k *kubelet) renew(ctx context.Context) error {
	now := time.Now().Truncate(time.Microsecond)
	path := nodeLeases + "/" + k.name
	body, err := leaseBody(k.name, k.version, now)
	if err != nil {
		return err
	}
	r := request{method: http.MethodPut, path: path, accept: mediaProtobuf, content: mediaProtobuf, body: body}
	name := "PUT leases"
	if k.version == "" {
		r.method, r.path, name = http.MethodPost, nodeLeases, "POST leases"
	}
	answer, err := k.ask(ctx, name, r)
	if isStatus(err, http.StatusConflict) { // an earlier renewal succeeded, whose answer was lost
		if answer, err = k.ask(ctx, "GET leases", get(path).as(mediaProtobuf)); err == nil {
			k.version = versionIn(answer)
		}
		return errors.Join(err, errStale)
	}
	if err == nil {
		k.version = versionIn(answer)
		k.ledger.renew(k.name, now)
	}
	return err
}

// errStale is the failure of a write that does not have the newest resourceVersion.
var errStale = errors.New("the Lease has changed")

func (k *kubelet) report(ctx context.Context) error {
	return k.call(ctx, "PATCH nodes/status", patch("/api/v1/nodes/"+k.name+"/status", mediaStrategicPatch, nodeStatus(time.Now())))
}

// see reports that a Pod runs, or removes it if it is deleted.
func (k *kubelet) see(ctx context.Context, pod seen) {
	uid, name := pod.uid(), pod.namespace()+"/"+pod.name()
	path := "/api/v1/namespaces/" + pod.namespace() + "/pods/" + pod.name()
	_, reported := k.running[uid]
	switch {
	case pod.kind == "DELETED":
		delete(k.running, uid)
	case pod.deleting():
		k.try(ctx, "removing Pod "+name, 0, func() error {
			err := k.call(ctx, "DELETE pods", request{method: http.MethodDelete, path: path, accept: mediaProtobuf, body: deleteBody(uid)})
			if err == nil || gone(err) {
				k.ledger.remove(uid, name)
				return nil
			}
			return err
		})
	case !reported && pod.phase() == "Pending":
		k.try(ctx, "reporting the status of Pod "+name, 0, func() error {
			err := k.call(ctx, "PATCH pods/status", patch(path+"/status", mediaStrategicPatch, podStatus(uid, time.Now())))
			if err == nil {
				k.running[uid] = struct{}{}
				k.ledger.run(uid, name)
			} else if gone(err) { // an event will follow
				return nil
			}
			return err
		})
	}
}

// gone reports whether an object does not exist, or is another one of the same name.
func gone(err error) bool {
	return isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusConflict)
}

// call sends a request and discards the answer.
func (k *kubelet) call(ctx context.Context, name string, r request) error {
	if r.accept == "" {
		r.accept = mediaProtobuf
	}
	began := time.Now()
	_, err := k.discard(ctx, r)
	k.record(name, began, err)
	return err
}

// ask sends a request and returns the answer. It is for beat alone.
func (k *kubelet) ask(ctx context.Context, name string, r request) ([]byte, error) {
	began := time.Now()
	err := k.do(ctx, r)
	k.record(name, began, err)
	return k.answer.Bytes(), err
}

// record times a call. One without an answer is not timed: it is retried, or recorded as failed.
func (k *kubelet) record(name string, began time.Time, err error) {
	var status *statusError
	if err == nil || errors.As(err, &status) {
		k.calls.add(name, time.Since(began))
	}
}
