package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	// TrialsPath is where trials are made: GET says whether there are any, POST makes one.
	TrialsPath = Path + "/trials"
	// ObjectsPath turns YAML into JSON, which the page can't.
	ObjectsPath = Path + "/objects"
)

// The bounds of a trial.
const (
	trialTime = 2 * time.Minute
	// leastMemory is what must be free for a trial of a small cluster, most what one of a large cluster gets.
	leastMemory, mostMemory = 384 << 20, 2 << 30
	maxChange               = 8 << 20
)

// Trials lets users try changes. Each trial is a process of its own, which copies the cluster through the API with the rights of its user:
// a user learns nothing from a copy that the user could not read. There is one at a time.
type Trials struct {
	// Program is the sqube that is run, "" if nothing can be tried.
	Program string
	// Kubeconfig returns a kubeconfig with the rights of the user of a request.
	Kubeconfig func(*http.Request) ([]byte, error)

	running atomic.Bool
}

const kubeconfigName = "kubeconfig"

// change is what is tried.
type change struct {
	Spec json.RawMessage `json:"spec"` // of a Transaction
	For  metav1.Duration `json:"for"`
	// Namespace is the only one that the user may read, "" for all.
	Namespace string `json:"namespace,omitempty"`
}

// ServesTrials reports whether a path is for Trials.
func ServesTrials(path string) bool { return path == TrialsPath || path == ObjectsPath }

// ServeHTTP implements http.Handler.
func (t *Trials) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	answer, err := t.answer(w, r)
	var status apierrors.APIStatus
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, answer)
	case errors.As(err, &status):
		s := status.Status()
		writeJSON(w, int(s.Code), s)
	default:
		s := apierrors.NewInternalError(err).Status()
		s.Message = err.Error()
		writeJSON(w, http.StatusInternalServerError, s)
	}
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

func (t *Trials) answer(w http.ResponseWriter, r *http.Request) (any, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxChange)
	switch {
	case r.URL.Path == TrialsPath && t.Program == "":
		return nil, refused(http.StatusNotFound, metav1.StatusReasonNotFound, "this server tries nothing (--console-try=false): run sqube try, or sqube console, on another machine")
	case r.URL.Path == ObjectsPath && r.Method == http.MethodPost:
		return objects(r.Body)
	case r.URL.Path == TrialsPath && r.Method == http.MethodPost:
		var c change
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the change to try: %v", err))
		}
		return t.try(r, &c)
	case r.URL.Path == TrialsPath && r.Method == http.MethodGet:
		return map[string]string{"refused": tooLittleMemory()}, nil
	}
	w.Header().Set("Allow", "GET, POST")
	return nil, apierrors.NewMethodNotSupported(metav1.Unversioned.WithResource("trials").GroupResource(), r.Method)
}

// objects returns the objects in YAML or JSON, those of lists one by one.
func objects(body io.Reader) (any, error) {
	found := []any{}
	decoder := yaml.NewYAMLOrJSONDecoder(body, 4096)
	for {
		var object map[string]any
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return map[string]any{"objects": found}, nil
		case err != nil:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("this is no YAML: %v", err))
		case len(object) == 0:
			continue
		}
		items, isList := object["items"].([]any)
		if kind, _ := object["kind"].(string); isList && strings.HasSuffix(kind, "List") {
			found = append(found, items...)
		} else {
			found = append(found, object)
		}
	}
}

// tooLittleMemory returns why there is no memory for a trial, "" if there is enough.
func tooLittleMemory() string {
	if free := freeMemory("/"); free > 0 && free < leastMemory {
		return fmt.Sprintf("a trial needs %d MiB of memory, and %d MiB are free on the machine that would run it: run sqube try, or sqube console, on another one", leastMemory>>20, free>>20)
	}
	return ""
}

// try runs a trial and returns its result. It ends when the request does.
func (t *Trials) try(r *http.Request, c *change) (any, error) {
	if !t.running.CompareAndSwap(false, true) {
		return nil, apierrors.NewTooManyRequests("another trial is running here, and there is one at a time", 1)
	}
	defer t.running.Store(false)
	if why := tooLittleMemory(); why != "" {
		return nil, apierrors.NewServiceUnavailable(why)
	}
	kubeconfig, err := t.Kubeconfig(r)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sqube-trial-") // private
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, kubeconfigName), kubeconfig, 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), trialTime, fmt.Errorf("it was given up after %v: run sqube try, which has no limit", trialTime))
	defer cancel()
	transaction, err := json.Marshal(map[string]any{
		"apiVersion": "history.sqube.io/v1alpha1", "kind": "Transaction", "metadata": map[string]any{"name": "console"}, "spec": c.Spec,
	})
	if err != nil {
		return nil, err
	}
	arguments := []string{"--from", "kube:", "-f", "-", "-o", "json", "--for", c.For.Duration.String()}
	if c.Namespace != "" {
		arguments = append(arguments, "--only-namespaces", c.Namespace)
	}
	return t.run(ctx, dir, transaction, arguments...)
}

// run runs sqube try and returns what it prints.
func (t *Trials) run(ctx context.Context, dir string, input []byte, arguments ...string) (any, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	command := exec.CommandContext(ctx, t.Program, append([]string{"try"}, arguments...)...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), &stdout, &stderr
	command.Dir, command.WaitDelay = dir, time.Second
	command.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, kubeconfigName), "TMPDIR="+dir) // which is removed, even if the process is killed
	if err := command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go limitMemory(command.Process.Pid, ended, cancel)
	err := command.Wait()
	close(ended)
	var result json.RawMessage
	if json.Unmarshal(stdout.Bytes(), &result) == nil { // whatever the verdict, and so the exit code, is
		return result, nil
	}
	message := strings.TrimPrefix(lastLine(stderr.String()), "sqube: ")
	switch cause := context.Cause(ctx); {
	case cause != nil:
		message = cause.Error()
	case message == "" && err != nil:
		message = err.Error()
	}
	return nil, refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "This could not be tried: "+message)
}

func refused(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
