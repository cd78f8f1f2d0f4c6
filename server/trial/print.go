package trial

import (
	"fmt"
	"io"
	"time"
)

// Print prints a result for people.
func (r *Result) Print(out io.Writer) error {
	for _, o := range r.Elsewhere {
		if _, err := fmt.Fprintf(out, "%s %s %s %s/%s %v\n", time.Duration(o.First), o.Operation, o.Kind, o.Namespace, o.Name, o.By); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out, r.Verdict)
	return err
}
