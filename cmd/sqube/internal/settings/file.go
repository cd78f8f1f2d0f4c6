package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// maxFile is the maximum size of a configuration file, in bytes.
const maxFile = 1 << 20

func (s Sources) fromFile() ([]setting, error) {
	if s.File == "" {
		return nil, nil
	}
	text, mode, err := read(s.File)
	if err != nil {
		return nil, fmt.Errorf("--config must name a readable file: %w", err)
	}
	mapping, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w", s.File, err)
	}
	var settings []setting
	var errs []error
	lines := map[string]int{}
	for i := 0; i+1 < len(mapping); i += 2 {
		key, value := mapping[i], mapping[i+1]
		origin := fmt.Sprintf("%s:%d", s.File, key.Line)
		refuse := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: %s", origin, fmt.Sprintf(format, args...)))
		}
		flag := s.lookup(key.Value)
		if flag == nil {
			hint := ""
			if near := s.nearest(key.Value); near != "" {
				hint = fmt.Sprintf(": did you mean %s?", near)
			}
			refuse("%q is not a setting%s", key.Value, hint)
			continue
		}
		if line, twice := lines[flag.Name]; twice {
			refuse("%s is set in line %d already", flag.Name, line)
			continue
		}
		lines[flag.Name] = key.Line
		values, err := valuesOf(flag, value)
		if err != nil {
			refuse("%s %v", flag.Name, err)
			continue
		}
		for _, value := range values {
			if mode.Perm()&0o007 != 0 && s.Secret != nil && s.Secret(flag, value) {
				refuse("%s holds a password and everyone may open the file: run chmod o= %s", flag.Name, s.File)
			}
		}
		settings = append(settings, setting{flag: flag, values: values, origin: origin})
	}
	return settings, errors.Join(errs...)
}

func read(path string) ([]byte, fs.FileMode, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, info.Mode(), err
}

// parse returns alternating keys and values. A file with only comments has none.
func parse(text []byte) ([]*yaml.Node, error) {
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	var document, more yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, oneLine(err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one YAML document")
	}
	root := document.Content[0]
	switch {
	case root.Kind == yaml.ScalarNode && root.Tag == "!!null":
		return nil, nil
	case root.Kind != yaml.MappingNode:
		return nil, fmt.Errorf("line %d: want NAME: VALUE, where NAME is a flag's without the dashes", root.Line)
	}
	return root.Content, nil
}

func oneLine(err error) error {
	return errors.New(strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: "))
}

// valuesOf returns the values to set the flag to, one after another. Lists and mappings are for flags with several values.
func valuesOf(flag *pflag.Flag, node *yaml.Node) ([]string, error) {
	list, pairs := multiplicity(flag.Value)
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag == "!!null":
		return nil, errors.New(`has no value: give one, or put a # before it`)
	case node.Kind == yaml.ScalarNode:
		return []string{node.Value}, nil
	case node.Kind == yaml.SequenceNode && list:
		values, err := scalars(node.Content)
		return orNone(flag, values), err
	case node.Kind == yaml.MappingNode && pairs:
		parts, err := scalars(node.Content)
		values := []string{}
		for i := 0; i+1 < len(parts); i += 2 {
			values = append(values, parts[i]+"="+parts[i+1])
		}
		return orNone(flag, values), err
	case list && pairs:
		return nil, errors.New("must be a mapping, a list or one value")
	case list:
		return nil, errors.New("must be a list or one value")
	}
	return nil, errors.New("must be one value")
}

// orNone returns values, or if there are none, the value that empties the flag.
func orNone(flag *pflag.Flag, values []string) []string {
	if len(values) == 0 && !isEmpty(flag.DefValue) {
		return []string{""}
	}
	return values
}

func scalars(nodes []*yaml.Node) ([]string, error) {
	values := make([]string, len(nodes))
	for i, node := range nodes {
		if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
			return nil, fmt.Errorf("must have plain values, line %d has none", node.Line)
		}
		values[i] = node.Value
	}
	return values, nil
}

// multiplicity reports whether a flag may be given several times, and whether each time as NAME=VALUE.
func multiplicity(value pflag.Value) (list, pairs bool) {
	switch kind := value.Type(); kind { // upstream's wrappers pass it on, unlike pflag.SliceValue
	case "mapStringBool", "mapStringString", "stringToString":
		return true, true
	case "namedCertKey", "colonSeparatedMultimapStringString", "sliceString":
		return true, false
	default:
		return strings.HasSuffix(kind, "Slice") || strings.HasSuffix(kind, "Array"), false
	}
}
