package kubectl

import (
	"fmt"
	"strings"
)

// transcript is a terminal session:
//
//	# A comment starts a paragraph.
//
//	$ kubectl get configmap web -o name
//	configmap/web
//
//	$ kubectl get configmap nothing |
//	> cat
//	Error from server (NotFound): configmaps "nothing" not found
//	[exit 1]
//
// A command is for bash, with continuation lines after "> ". Its output is what it writes to stdout and stderr, followed by its
// exit code if that is not 0. The output ends before an empty line followed by a comment or a command.
type transcript []step

// step is a command with the preceding comment.
type step struct {
	line    int // of the command
	comment []string
	command string
	output  string
}

const (
	commandMark      = "$ "
	continuationMark = "> "
	commentMark      = "# "
)

// parse parses a transcript. It returns an error for text that is neither comment, command nor output.
func parse(text string) (transcript, error) {
	var steps transcript
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); {
		var s step
		for ; i < len(lines) && (lines[i] == "" || strings.HasPrefix(lines[i], commentMark)); i++ {
			s.comment = append(s.comment, lines[i])
		}
		if i == len(lines) {
			break
		}
		command, ok := strings.CutPrefix(lines[i], commandMark)
		if !ok {
			return nil, fmt.Errorf("line %d: want a command after %q, found %q", i+1, commandMark, lines[i])
		}
		s.line = i + 1
		for i++; i < len(lines) && strings.HasPrefix(lines[i], continuationMark); i++ {
			command += "\n" + strings.TrimPrefix(lines[i], continuationMark)
		}
		s.command = command
		for ; i < len(lines) && !endsOutput(lines[i:]); i++ {
			s.output += lines[i] + "\n"
		}
		s.output = strings.TrimRight(s.output, "\n")
		steps = append(steps, s)
	}
	return steps, nil
}

// endsOutput reports whether the lines start with an empty one followed by a comment, a command or nothing.
func endsOutput(lines []string) bool {
	if lines[0] != "" {
		return false
	}
	for _, line := range lines {
		if line != "" {
			return strings.HasPrefix(line, commandMark) || strings.HasPrefix(line, commentMark)
		}
	}
	return true
}

// String is the inverse of parse.
func (t transcript) String() string {
	var b strings.Builder
	for i, s := range t {
		comment := strings.Trim(strings.Join(s.comment, "\n"), "\n")
		if i > 0 {
			b.WriteString("\n")
		}
		if comment != "" {
			b.WriteString(comment + "\n\n")
		}
		b.WriteString(commandMark + strings.ReplaceAll(s.command, "\n", "\n"+continuationMark) + "\n")
		if s.output != "" {
			b.WriteString(s.output + "\n")
		}
	}
	return b.String()
}
