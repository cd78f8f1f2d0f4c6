package main

import "testing"

// TestShownIntegers checks that integers are shown with all their digits: kubectl apply would store what is shown.
func TestShownIntegers(t *testing.T) {
	const stored = `{"apiVersion":"example.com/v1","big":9007199254740993,"fraction":0.5,"kind":"Thing","small":-1}`
	const want = "apiVersion: example.com/v1\nbig: 9007199254740993\nfraction: 0.5\nkind: Thing\nsmall: -1\n"
	if text, err := shown([]byte(stored), false, false); err != nil || string(text) != want {
		t.Errorf("shown as\n%s\n%v", text, err)
	}
}
