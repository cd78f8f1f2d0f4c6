package server

import (
	"time"

	"k8s.io/component-base/metrics"
)

// unconfirmed collects how many transactions must be confirmed. Servers of one database know the same ones.
var unconfirmed = newCollector([]*metrics.Desc{unconfirmedCount, unconfirmedDeadline, unconfirmedFailing}, collectUnconfirmed)

var (
	unconfirmedCount = metrics.NewDesc("sqube_transactions_unconfirmed",
		"Transactions that the server takes back at their deadlines unless somebody confirms them.", nil, nil, metrics.ALPHA, "")
	unconfirmedDeadline = metrics.NewDesc("sqube_transactions_unconfirmed_deadline_timestamp_seconds",
		"The first deadline of these transactions, in Unix time; 0 if there are none.", nil, nil, metrics.ALPHA, "")
	unconfirmedFailing = metrics.NewDesc("sqube_transactions_takeback_failing",
		"Transactions that nobody has confirmed and that could not be taken back, which is tried again.", nil, nil, metrics.ALPHA, "")
)

func collectUnconfirmed(servers []*Server, found chan<- metrics.Metric) {
	var waiting, failing int
	var first time.Time
	for _, s := range servers {
		state := s.history.taker.State()
		waiting, failing = waiting+state.Waiting, failing+state.Failing
		if !state.Deadline.IsZero() && (first.IsZero() || state.Deadline.Before(first)) {
			first = state.Deadline
		}
	}
	deadline := 0.0
	if !first.IsZero() {
		deadline = float64(first.Unix())
	}
	found <- metrics.NewLazyConstMetric(unconfirmedCount, metrics.GaugeValue, float64(waiting))
	found <- metrics.NewLazyConstMetric(unconfirmedDeadline, metrics.GaugeValue, deadline)
	found <- metrics.NewLazyConstMetric(unconfirmedFailing, metrics.GaugeValue, float64(failing))
}
