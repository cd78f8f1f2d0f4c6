package postgres

import (
	"bytes"
	"io"
)

// scriptHead is how much of a script is looked at: what pg_restore sets stands at its beginning.
const scriptHead = 4 << 10

// From version 17 on, pg_restore sets a parameter that older servers do not know. Where there is one, it is set.
var (
	setsTimeout   = []byte("\nSET transaction_timeout = 0;\n")
	setsIfItKnows = []byte("\nSELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout';\n")
)

// scriptWriter passes a script of pg_restore on, in a form that servers of older versions take too. Its writer calls flush
// at the end.
type scriptWriter struct {
	to     io.Writer
	held   []byte
	passed bool // the head is
}

func (w *scriptWriter) Write(p []byte) (int, error) {
	if w.passed {
		return w.to.Write(p)
	}
	if w.held = append(w.held, p...); len(w.held) < scriptHead {
		return len(p), nil
	}
	return len(p), w.flush()
}

func (w *scriptWriter) flush() error {
	head, rest := w.held, []byte(nil)
	if len(head) > scriptHead {
		head, rest = head[:scriptHead], head[scriptHead:]
	}
	w.held, w.passed = nil, true
	_, err := w.to.Write(append(bytes.Replace(head, setsTimeout, setsIfItKnows, 1), rest...))
	return err
}
