package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
)

// logOptions are the flags for the log, which is written to standard error.
type logOptions struct {
	format    string
	verbosity int
	modules   string // klog's -vmodule
	level     slog.LevelVar
	// stopping is set once the server begins to stop. In-process clients then log harmless errors when their requests fail.
	stopping atomic.Bool
}

func (o *logOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.format, "logging-format", "text", "Format of the log on standard error: text or json.")
	fs.IntVarP(&o.verbosity, "v", "v", 0, "Log level: 0 for what an operator must know, 1 to add messages of the Kubernetes libraries, up to 10 for every detail.")
	fs.StringVar(&o.modules, "vmodule", "", "Log levels for source files of the Kubernetes libraries, as pattern=level, separated by commas. The pattern is a file's name without .go, and may contain * and ?.")
}

// start sends the server's own log and that of the Kubernetes libraries to standard error, in one format. Messages of the libraries
// are debug output unless they are warnings or errors.
func (o *logOptions) start() error {
	o.setLevel(o.verbosity)
	options := &slog.HandlerOptions{Level: &o.level}
	var handler slog.Handler
	switch o.format {
	case "text":
		handler = slog.NewTextHandler(os.Stderr, options)
	case "json":
		handler = slog.NewJSONHandler(os.Stderr, options)
	default:
		return fmt.Errorf("--logging-format %q must be text or json", o.format)
	}
	slog.SetDefault(slog.New(handler))
	return o.redirectKlog(handler)
}

// setLevel sets the level of the server's own log.
func (o *logOptions) setLevel(verbosity int) {
	if verbosity > 0 || o.modules != "" {
		o.level.Set(slog.LevelDebug)
	} else {
		o.level.Set(slog.LevelInfo)
	}
}

// setVerbosity changes -v while the server runs, and returns a confirmation.
func (o *logOptions) setVerbosity(text string) (string, error) {
	answer, err := logs.GlogSetter(text)
	if err != nil {
		return "", err
	}
	verbosity, err := strconv.Atoi(text)
	o.setLevel(verbosity)
	return answer, err
}

// errLogged replaces an error that has been logged.
var errLogged = errors.New("see the log")

// logged returns err, or with JSON logs it logs err, so that standard error has nothing but log records, and returns errLogged.
func (o *logOptions) logged(err error) error {
	if err == nil || o.format != "json" {
		return err
	}
	for _, line := range lines(err) {
		slog.Error(line)
	}
	return errLogged
}

// redirectKlog makes klog write lines without headers, each severity to its own writer. klog.SetSlogLogger would lose the severity:
// klog logs warnings as info messages.
func (o *logOptions) redirectKlog(handler slog.Handler) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{
		"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL",
		"one_output": "true", "skip_headers": "true", "v": strconv.Itoa(o.verbosity),
	} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("setting up the log: %w", err)
		}
	}
	if err := flags.Set("vmodule", o.modules); err != nil {
		return fmt.Errorf("--vmodule %q must be pattern=level, with commas between several: %w", o.modules, err)
	}
	said := newRepeats()
	for severity, level := range map[string]slog.Level{"INFO": slog.LevelDebug, "WARNING": slog.LevelWarn, "ERROR": slog.LevelError, "FATAL": slog.LevelError} {
		klog.SetOutputBySeverity(severity, &levelWriter{slog.New(handler), level, &o.stopping, said})
	}
	return nil
}
