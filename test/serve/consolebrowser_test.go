package serve

import (
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// openConsole opens a URL of sqube console as a browser does, whose cookies the client has. It returns the address without the key, and
// the page at the end.
func openConsole(t *testing.T, c *http.Client, opening string) (address string, code int, page string) {
	t.Helper()
	parsed, err := url.Parse(opening)
	harness.Must(t, err)
	address = "http://" + parsed.Host
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, opening, nil)
	harness.Must(t, err)
	code, page = harness.Do(t, c, request)
	if code != http.StatusOK {
		return address, code, page
	}
	form := strings.NewReader(url.Values{"key": {parsed.Query().Get("key")}}.Encode())
	request, err = http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/open", form)
	harness.Must(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	code, page = harness.Do(t, c, request)
	return address, code, page
}

// noticing is a program that is started as a browser. It writes down its command line, and the modes and the content of the file that it
// is to show.
const noticing = `#!/bin/sh
printf '%s\n' "$*" >"$NOTICED/line.part"
stat -c %a "$(dirname "$1")" "$1" >"$NOTICED/modes"
cat "$1" >"$NOTICED/page"
mv "$NOTICED/line.part" "$NOTICED/line"
`

// TestConsoleInABrowser has sqube console start a browser, whose command line everybody can read, with a umask that protects nothing.
func TestConsoleInABrowser(t *testing.T) {
	t.Parallel()
	programs, noticed, temporary, runtime := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "link"), t.TempDir()
	for _, name := range []string{"xdg-open", "open"} {
		harness.Must(t, os.WriteFile(filepath.Join(programs, name), []byte(noticing), 0o755))
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	harness.Must(t, os.WriteFile(kubeconfig, []byte(nowhere), 0o600))
	folder := t.TempDir()
	harness.Must(t, os.Symlink(folder, temporary))
	for _, mode := range []os.FileMode{0o700, 0o777} { // a folder that is open to others is not used
		harness.Must(t, os.Chmod(runtime, mode))
		_ = os.Remove(filepath.Join(noticed, "line"))
		process := sqube.Command(t, []string{"console", "--kubeconfig", kubeconfig}, func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "PATH="+programs+":"+os.Getenv("PATH"), "NOTICED="+noticed, "TMPDIR="+temporary, "XDG_RUNTIME_DIR="+runtime)
			cmd.Args = append([]string{"sh", "-c", `umask 000; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
			cmd.Path = "/bin/sh"
		})
		read := func(name string) string {
			content, err := os.ReadFile(filepath.Join(noticed, name))
			if err != nil {
				return ""
			}
			return strings.TrimSpace(string(content))
		}
		harness.Eventually(t, "a browser is started", func() bool { return read("line") != "" })
		line, page := read("line"), read("page")
		within := runtime
		if mode != 0o700 {
			within = temporary
		}
		if !strings.HasPrefix(line, within+"/sqube-console-") || strings.Contains(line, " ") || read("modes") != "700\n600" {
			t.Fatalf("the browser's command line is %q, the modes of the folder and the file are %q", line, read("modes"))
		}
		opening := html.UnescapeString(regexp.MustCompile(`url=([^"]*)"`).FindStringSubmatch(page)[1])
		printed := strings.TrimSpace(process.Stdout(t))
		if _, key, _ := strings.Cut(opening, "key="); key == "" || strings.Contains(printed, key) || strings.Contains(line, key) {
			t.Errorf("the page leads to %s, the browser was started with %s, and %s was printed", opening, line, printed)
		}
		opens := func(what, opening string, want int) {
			t.Helper()
			jar, err := cookiejar.New(nil)
			harness.Must(t, err)
			if _, code, text := openConsole(t, &http.Client{Jar: jar, Timeout: harness.Patience / 2}, opening); code != want {
				t.Errorf("%s: %d %s", what, code, text)
			}
		}
		if mode == 0o700 {
			opens("the browser", opening, http.StatusOK)
			harness.Eventually(t, "the page is removed", func() bool { return len(entries(t, within)) == 0 })
			opens("another browser with the same URL", opening, http.StatusForbidden)
			opens("a browser with the URL that was printed", printed, http.StatusOK)
		}
		harness.Must(t, process.Signal(syscall.SIGTERM))
		if code, left := process.Code(t), entries(t, within); code != 0 || len(left) > 0 {
			t.Errorf("interrupted, it ends with %d, and leaves %v", code, left)
		}
	}
}

// nowhere is a kubeconfig of a server that does not exist.
const nowhere = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`
