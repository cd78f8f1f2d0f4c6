package bodies

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// nodeBytes is what a node of YAML takes while it is parsed.
	nodeBytes = 512
	// maxYAMLValues is less than maxValues, because decoding YAML takes more. The same can be sent as JSON.
	maxYAMLValues = 128 << 10
	// maxYAMLText is how much text there may be, with that which aliases repeat.
	maxYAMLText = 8 << 20
)

// countYAML parses data if it is long or has aliases, which are counted as often as they are used. Clients send JSON as YAML, too.
func countYAML(data []byte, c *counter) error {
	aliases := bytes.IndexByte(data, '&') >= 0 && bytes.IndexByte(data, '*') >= 0
	if !aliases && len(data) <= smallBytes {
		return nil
	}
	if json.Valid(data) {
		if err := countJSON(data, c); err != nil {
			return err
		}
		return c.reserve(c.values * nodeBytes)
	}
	n := separators(data)
	if n > maxValues {
		return errTooMuch
	}
	if err := c.reserve(n * nodeBytes); err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil && !aliases {
		return nil // the decoder says what is wrong
	} else if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the body is not valid YAML: %v", err))
	}
	all := expansions{}.of(&document)
	if all.objects > maxObjects || all.values > maxYAMLValues || all.text > maxYAMLText {
		return errTooMuch
	}
	c.objects, c.values = all.objects, all.values
	return c.reserve(all.text)
}

// separators returns at least half the number of values in a YAML document: each value follows one of these.
func separators(data []byte) int {
	n := 1
	for i, b := range data {
		switch b {
		case ',', '[', '{', '\n':
			n++
		case '-', ':', '?':
			if i+1 == len(data) || data[i+1] <= ' ' {
				n++
			}
		}
	}
	return n
}

// expansion is what a node holds, with its aliases replaced.
type expansion struct{ objects, values, text int }

// enough is more than any limit. Counts stop there instead of overflowing.
const enough = 1 << 40

func (e *expansion) add(other expansion) {
	e.objects = min(e.objects+other.objects, enough)
	e.values = min(e.values+other.values, enough)
	e.text = min(e.text+other.text, enough)
}

// expansions are the counts of the nodes that have an anchor.
type expansions map[*yaml.Node]expansion

func (known expansions) of(node *yaml.Node) expansion {
	if node.Kind == yaml.AliasNode {
		return known.of(node.Alias)
	}
	if e, ok := known[node]; ok {
		return e
	}
	if node.Anchor != "" {
		known[node] = expansion{enough, enough, enough} // while it is counted, in case it holds itself
	}
	e := expansion{values: 1, text: len(node.Value)}
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		e.objects = 1
	}
	for _, child := range node.Content {
		e.add(known.of(child))
	}
	if node.Anchor != "" {
		known[node] = e
	}
	return e
}
