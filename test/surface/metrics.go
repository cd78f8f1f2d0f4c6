package surface

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", (?:unit: "[^"]*", )?constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)
	stability   = regexp.MustCompile(`^\[([A-Z]+)\] (?:\(Deprecated since (\S+)\))?`)
)

// Metrics returns the metrics that are registered in this process, with values or without. Those without a stability are left out:
// they describe the process, or are the program's own.
func Metrics() ([]Item, error) {
	registry, ok := legacyregistry.Registerer().(prometheus.Collector)
	if !ok {
		return nil, fmt.Errorf("a %T does not list its metrics", legacyregistry.Registerer())
	}
	found := make(chan *prometheus.Desc)
	go func() {
		defer close(found)
		registry.Describe(found)
	}()
	var items []Item
	var err error
	for metric := range found {
		parts := description.FindStringSubmatch(metric.String())
		if parts == nil {
			err = fmt.Errorf("%s is in an unknown form", metric)
			continue
		}
		if fields := Metric(parts[2], strings.Split(parts[3], ",")); fields != nil {
			items = append(items, Item{"metric", parts[1], fields})
		}
	}
	return items, err
}

// Metric returns the fields of a metric with that help and these labels, nil if it has no stability.
func Metric(help string, labels []string) map[string]string {
	parts := stability.FindStringSubmatch(help)
	if parts == nil {
		return nil
	}
	fields := map[string]string{"stability": parts[1]}
	if parts[2] != "" {
		fields["deprecated"] = parts[2]
	}
	if names := list(labels); names != "" {
		fields["labels"] = names
	}
	return fields
}
