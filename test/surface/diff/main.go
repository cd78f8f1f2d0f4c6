// Command diff prints what is new, changed and gone between two files with lists: go run ./test/surface/diff OLD NEW.
package main

import (
	"fmt"
	"os"

	"github.com/sqube/sqube/test/surface"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: diff OLD NEW")
		os.Exit(2)
	}
	var both [2][]surface.Item
	for i, path := range os.Args[1:] {
		file, err := os.Open(path)
		if err == nil {
			both[i], err = surface.Parse(file)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "diff: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
	fmt.Print(surface.Diff(both[0], both[1]))
}
