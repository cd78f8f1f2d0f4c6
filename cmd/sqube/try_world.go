package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/sqube/sqube/server/trial"
)

// tryWorld are the flags of sqube try for what happens around the change.
type tryWorld struct {
	lost  []string
	loads []string
}

func (o *tryWorld) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&o.lost, "lose", nil, "Node that fails when the change is made, such as node/n3. Can be given several times, and without a change.")
	fs.StringArrayVar(&o.loads, "load", nil, "CPU that the pods of a workload use in all from the change on, for HorizontalPodAutoscalers: deployment/web=4.5 in CPUs, or deployment/web=200% of what they have used. Can be given several times, and without a change. By default it stays as it was.")
}

// given reports whether there is something to try even if nothing is changed.
func (o *tryWorld) given() bool { return len(o.lost)+len(o.loads) > 0 }

// words says what happens.
func (o *tryWorld) words() string {
	var words []string
	for _, node := range o.lost {
		words = append(words, "--lose "+node)
	}
	for _, load := range o.loads {
		words = append(words, "--load "+load)
	}
	return strings.Join(words, " ")
}

// set sets what happens. Workloads are in the namespace.
func (o *tryWorld) set(namespace string, to *trial.Options) error {
	for _, node := range o.lost {
		kind, name, named := strings.Cut(node, "/")
		if !named {
			kind, name = "node", node
		}
		if kind = strings.ToLower(kind); name == "" || kind != "node" && kind != "nodes" && kind != "no" {
			return fmt.Errorf("--lose %s: want a node, such as node/n3", node)
		}
		to.Lost = append(to.Lost, name)
	}
	for _, text := range o.loads {
		load, err := trial.ParseLoad(text, cmp.Or(namespace, corev1.NamespaceDefault))
		if err != nil {
			return fmt.Errorf("--load: %w", err)
		}
		to.Loads = append(to.Loads, load)
	}
	return nil
}
