package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sqube/sqube/server/trialrun"
)

const (
	// TrialsPath is where trials are made: GET says whether there are any, POST makes one.
	TrialsPath = Path + "/trials"
	// ObjectsPath turns YAML into JSON, which the page can't.
	ObjectsPath = Path + "/objects"
)

// maxChange is how many bytes of a change are read.
const maxChange = 8 << 20

// Trials lets users try changes. Each trial is a process of its own, which copies the cluster through the API with the rights of its user:
// a user learns nothing from a copy that the user could not read. There is one at a time.
type Trials struct {
	// Runner runs them, nil if nothing can be tried.
	Runner *trialrun.Runner
	// Kubeconfig returns a kubeconfig with the rights of the user of a request.
	Kubeconfig func(*http.Request) ([]byte, error)
}

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
	case r.URL.Path == TrialsPath && t.Runner == nil:
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
		return map[string]string{"refused": trialrun.Refused()}, nil
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

// try runs a trial and returns its result. It ends when the request does.
func (t *Trials) try(r *http.Request, c *change) (any, error) {
	if why := trialrun.Refused(); why != "" {
		return nil, apierrors.NewServiceUnavailable(why)
	}
	transaction, err := json.Marshal(map[string]any{
		"apiVersion": "history.sqube.io/v1alpha1", "kind": "Transaction", "metadata": map[string]any{"name": "console"}, "spec": c.Spec,
	})
	if err != nil {
		return nil, err
	}
	result, err := t.Runner.Run(r.Context(), trialrun.Trial{Input: transaction, Prepare: func(dir string) ([]string, error) {
		text, err := t.Kubeconfig(r)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "kubeconfig")
		arguments := []string{"--kubeconfig", file, "-f", "-", "--for", c.For.Duration.String()}
		if c.Namespace != "" {
			arguments = append(arguments, "--only-namespaces", c.Namespace)
		}
		return arguments, os.WriteFile(file, text, 0o600)
	}})
	if _, ok := errors.AsType[*apierrors.StatusError](err); ok || err == nil {
		return result, err
	}
	if errors.Is(err, trialrun.ErrBusy) {
		return nil, apierrors.NewTooManyRequests(err.Error(), 1)
	}
	return nil, refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
}

func refused(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}
