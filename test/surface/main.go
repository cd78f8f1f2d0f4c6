// Command surface prints what clients and administrators see of the kube-apiserver whose code sqube has in its go.mod, as sorted
// lines: flags, feature gates, admission plugins, resources, roles, health checks, metrics, the priorities of group versions, and
// the controllers of kube-controller-manager. It imports no package of sqube but the lists' form, so it can be built when
// sqube does not yet fit a new Kubernetes.
//
//	go run ./test/surface                # print the lists
//	go run ./test/surface diff OLD NEW   # print what is new, changed and gone between two files with such lists
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/sqube/sqube/test/surface/lists"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "surface:", err)
		os.Exit(1)
	}
}

// everything turns on what kube-apiserver serves on request.
var everything = []string{"--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true"}

func run(args []string, out io.Writer) error {
	switch {
	case len(args) == 3 && args[0] == "diff":
		return diff(args[1], args[2], out)
	case len(args) > 0 && args[0] == "served":
		items, err := served(args[1:])
		write(out, items)
		return err
	case len(args) > 0:
		return errors.New("usage: surface [diff OLD NEW]")
	}
	byDefault, err := servedWith()
	if err != nil {
		return err
	}
	all, err := servedWith(everything...)
	if err != nil {
		return err
	}
	write(out, slices.Concat(described(), byDefault, lists.OnRequest(byDefault, all)))
	return nil
}

// servedWith returns what a kube-apiserver with additional flags serves. Feature gates are the process', so it is another one.
func servedWith(flags ...string) ([]lists.Item, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var output, log bytes.Buffer
	cmd := exec.Command(self, append([]string{"served"}, flags...)...)
	cmd.Env = append(os.Environ(), "ETCD_CLIENT_DEBUG=fatal") // the client's log level
	cmd.Stdout, cmd.Stderr = &output, &log
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kube-apiserver %s: %w\n%s", strings.Join(flags, " "), err, &log)
	}
	return read(&output)
}

func write(out io.Writer, items []lists.Item) {
	lines := make([]string, 0, len(items))
	for _, i := range items {
		lines = append(lines, i.String())
	}
	slices.Sort(lines)
	fmt.Fprintln(out, strings.Join(slices.Compact(lines), "\n"))
}

func read(in io.Reader) ([]lists.Item, error) {
	var items []lists.Item
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		item, err := lists.Parse(lines.Text())
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, lines.Err()
}

func diff(before, after string, out io.Writer) error {
	var both [2][]lists.Item
	for i, path := range []string{before, after} {
		text, err := os.ReadFile(path)
		if err == nil {
			both[i], err = read(bytes.NewReader(text))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	_, err := io.WriteString(out, lists.Diff(both[0], both[1]))
	return err
}
