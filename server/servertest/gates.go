package servertest

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/sqube/sqube/server"
)

// gates are the feature gates of the process while servers run.
var gates struct {
	mu      sync.Mutex
	running int
	before  map[string]bool // values of the gates that servers have changed
}

// setGates sets feature gates for a server. done must be called when the server has stopped; it may be called more than once.
func setGates(wanted map[string]bool) (done func(), err error) {
	gates.mu.Lock()
	defer gates.mu.Unlock()
	if err := server.SetDefaultGates(); err != nil {
		return nil, err
	}
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	changed := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if _, there := known[featuregate.Feature(name)]; !there {
			return nil, fmt.Errorf("there is no feature gate %s", name)
		}
		is := utilfeature.DefaultMutableFeatureGate.Enabled(featuregate.Feature(name))
		switch {
		case is == wanted[name]:
		case gates.running > 0:
			return nil, fmt.Errorf("the feature gate %s is %t for the servers that run in this process, which share their gates", name, is)
		default:
			changed[name] = is
		}
	}
	if len(changed) > 0 {
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(wanted); err != nil {
			return nil, err
		}
		gates.before = changed
	}
	gates.running++
	return sync.OnceFunc(endGates), nil
}

// endGates restores the gates when the last server has stopped.
func endGates() {
	gates.mu.Lock()
	defer gates.mu.Unlock()
	if gates.running--; gates.running == 0 && len(gates.before) > 0 {
		_ = utilfeature.DefaultMutableFeatureGate.SetFromMap(gates.before) // never fails: the gates had these values before
		gates.before = nil
	}
}
