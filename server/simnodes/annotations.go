package simnodes

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Annotations of Pods that no script selects. Each line of RunAnnotation is a Run, and StopAnnotation is Script.Stop. Steps are separated by
// semicolons: the functions that return a Step, in words. Followed by a dash and a name, the annotations are for that container; otherwise for
// all that are not init containers.
//
//	simnodes.sqube.io/run: |
//	  wait 5s; log no database; exit 1
//	  wait 1s; start; ready; wait 1m; unready; wait 10s; ready; wait 1h; exit 137 OOMKilled
//	simnodes.sqube.io/stop-main: wait 2s; exit 0
//
// The words are wait, start, ready, unready, log, exit, fail-liveness, fail-pull and evict. If they are wrong, the container's image can't be
// pulled, with the error as the message.
const (
	RunAnnotation  = "simnodes.sqube.io/run"
	StopAnnotation = "simnodes.sqube.io/stop"
)

// annotated returns what the annotations of a Pod say about a container.
func annotated(pod *corev1.Pod, container string, init bool) (runs []Run, stop Run) {
	text := func(annotation string) (string, bool) {
		text, ok := pod.Annotations[annotation+"-"+container]
		if !ok && !init {
			text, ok = pod.Annotations[annotation]
		}
		return strings.TrimSpace(text), ok
	}
	wrong := func(err error) ([]Run, Run) { return []Run{{FailPull(err.Error())}}, nil }
	if lines, ok := text(RunAnnotation); ok {
		for line := range strings.Lines(lines) {
			run, err := parseRun(line)
			if err != nil {
				return wrong(fmt.Errorf("annotation %s: %w", RunAnnotation, err))
			}
			runs = append(runs, run)
		}
	}
	if line, ok := text(StopAnnotation); ok {
		var err error
		if stop, err = parseRun(line); err != nil {
			return wrong(fmt.Errorf("annotation %s: %w", StopAnnotation, err))
		}
	}
	if _, err := newScripted(Script{Runs: runs, Stop: stop}); err != nil {
		return wrong(err)
	}
	return runs, stop
}

// parseRun parses steps separated by semicolons.
func parseRun(text string) (Run, error) {
	run := Run{}
	for text := range strings.SplitSeq(text, ";") {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		step, err := parseStep(text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		run = append(run, step)
	}
	return run, nil
}

func parseStep(text string) (Step, error) {
	word, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "wait":
		d, err := time.ParseDuration(rest)
		return Wait(d), err
	case "log":
		return Log("%s", rest), nil
	case "exit":
		number, reason, _ := strings.Cut(rest, " ")
		reason, message, _ := strings.Cut(reason, " ")
		code, err := strconv.ParseInt(number, 10, 32)
		return ExitWith(int(code), reason, message), err
	case "fail-pull":
		return FailPull(rest), nil
	case "evict":
		return Evict(rest), nil
	}
	simple := map[string]func() Step{"start": Start, "ready": Ready, "unready": Unready, "fail-liveness": FailLiveness}
	if step := simple[word]; step != nil && rest == "" {
		return step(), nil
	}
	return Step{}, errors.New("there is no such step")
}
