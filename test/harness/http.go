package harness

import (
	"io"
	"net/http"
	"testing"
)

// Do sends a request and returns the status and the whole body of the response. It fails the test if there is no response.
func Do(t testing.TB, client *http.Client, request *http.Request) (code int, body string) {
	t.Helper()
	response, err := client.Do(request)
	Must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	Must(t, err)
	return response.StatusCode, string(text)
}
