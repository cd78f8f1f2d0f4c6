package postgres

import (
	"bytes"
	"io"
)

// scriptHead is how much of a script is searched: pg_restore sets parameters at the beginning.
const scriptHead = 4 << 10

// Since version 17, pg_restore sets a parameter that older servers lack. It is replaced with a statement that sets it only if the
// server has it.
var (
	setsTimeout = []byte("\nSET transaction_timeout = 0;\n")
	setsIfKnown = []byte("\nSELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout';\n")
)

// scriptWriter passes on a script of pg_restore in a form that older servers accept too. Call flush at the end.
type scriptWriter struct {
	to     io.Writer
	held   []byte
	passed bool // the head has been written
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
	_, err := w.to.Write(append(bytes.Replace(head, setsTimeout, setsIfKnown, 1), rest...))
	return err
}
