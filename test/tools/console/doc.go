// Package console tests the console in a browser, Chromium, which serves all tests.
package console
