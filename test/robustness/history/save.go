package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// Save writes the history to files in a directory, one record per line: operations.jsonl, lists.jsonl,
// watches.jsonl, informers.jsonl.
func (h *History) Save(dir string) error {
	return errors.Join(
		save(filepath.Join(dir, "operations.jsonl"), h.Operations),
		save(filepath.Join(dir, "lists.jsonl"), h.Lists),
		save(filepath.Join(dir, "watches.jsonl"), h.Watches),
		save(filepath.Join(dir, "informers.jsonl"), h.Informers),
	)
}

// Load reads what Save wrote.
func Load(dir string) (*History, error) {
	h := &History{}
	return h, errors.Join(
		load(filepath.Join(dir, "operations.jsonl"), &h.Operations),
		load(filepath.Join(dir, "lists.jsonl"), &h.Lists),
		load(filepath.Join(dir, "watches.jsonl"), &h.Watches),
		load(filepath.Join(dir, "informers.jsonl"), &h.Informers),
	)
}

func save[T any](path string, records []T) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := bufio.NewWriter(file)
	encoder := json.NewEncoder(w)
	for _, record := range records {
		if err := encoder.Encode(record); err != nil {
			return err
		}
	}
	return w.Flush()
}

func load[T any](path string, records *[]T) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // nothing was written
	for decoder := json.NewDecoder(bufio.NewReader(file)); decoder.More(); {
		var record T
		if err := decoder.Decode(&record); err != nil {
			return err
		}
		*records = append(*records, record)
	}
	return nil
}
