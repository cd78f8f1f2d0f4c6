package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// readResults reads the output of a run. It skips the table and other terminal output: a result is a line that begins with a
// brace.
func readResults(in io.Reader) (results []result, err error) {
	lines := bufio.NewScanner(in)
	for number := 1; lines.Scan(); number++ {
		line := bytes.TrimSpace(lines.Bytes())
		if !bytes.HasPrefix(line, []byte("{")) {
			continue
		}
		var r result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("line %d is not a result of the benchmark: %w", number, err)
		}
		results = append(results, r)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(results) == 0 {
		return nil, errors.New("the input has no results; pass the output of a run, as in: go run ./test/bench plot <run.jsonl")
	}
	return results, nil
}

// tableOf prints the table of a recorded run.
func tableOf(in io.Reader, out io.Writer) error {
	results, err := readResults(in)
	if err != nil {
		return err
	}
	suite, err := suiteOf(results[0].Command)
	if err != nil {
		return err
	}
	return writeTable(out, suite.rows(), results)
}
