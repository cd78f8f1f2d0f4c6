package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listenerOf returns the process that listens on the port of the URL, by its socket's inode in /proc/net/tcp.
func listenerOf(server string) (int, error) {
	u, err := url.Parse(server)
	if err != nil {
		return 0, err
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return 0, fmt.Errorf("%s has no port", server)
	}
	inodes, err := listeningSockets(port)
	if err != nil {
		return 0, err
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, err
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue // another user's process, or one that has ended
		}
		if inodes[target] {
			return strconv.Atoi(strings.Split(link, "/")[2])
		}
	}
	return 0, fmt.Errorf("found no process listening on port %d; name the server's processes with --pid", port)
}

// listeningSockets returns the names of the sockets that listen on the port, as in the links of /proc/PID/fd.
func listeningSockets(port int) (map[string]bool, error) {
	const listening = "0A" // TCP_LISTEN
	found := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, err := os.ReadFile(table)
		if os.IsNotExist(err) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(raw)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == listening && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				found["socket:["+f[9]+"]"] = true
			}
		}
	}
	return found, nil
}
