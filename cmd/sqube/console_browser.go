package main

import (
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/sqube/sqube/server/console"
)

// browserPage is a private file that leads the browser to a URL: every user of the machine can read the command lines of others.
type browserPage struct {
	mu  sync.Mutex
	dir string
}

// open opens the console where there is a browser. Where there is none, or it can't read the file, the user has read another URL.
func (b *browserPage) open(proxy *console.Proxy) {
	path, err := b.write(proxy.URL(b.remove))
	if err != nil {
		fmt.Fprintf(os.Stderr, "no browser is started: %v\n", err)
		return
	}
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	cmd := exec.Command(program, path)
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }()
	}
}

// write writes a page that leads to the URL, and returns its path.
func (b *browserPage) write(url string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	if b.dir, err = os.MkdirTemp(privateFolder(), "sqube-console-"); err != nil { // for this user alone, whatever the umask
		return "", err
	}
	path := filepath.Join(b.dir, "console.html")
	text := html.EscapeString(url)
	page := fmt.Sprintf("<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<title>sqube</title>\n"+
		"<meta http-equiv=\"refresh\" content=\"0;url=%s\">\n<a href=\"%s\">Open the console</a>\n", text, text)
	return path, os.WriteFile(path, []byte(page), 0o600)
}

// remove removes the file, if there is one.
func (b *browserPage) remove() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// privateFolder returns the user's folder for files of a session, or "" for that of temporary files.
func privateFolder() string {
	folder := os.Getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(folder); !filepath.IsAbs(folder) || err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return ""
	}
	return folder
}
