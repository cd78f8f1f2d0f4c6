package mirror

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/sqlstore"
)

// AuditPath is where a follower takes audit events of an audit webhook.
const AuditPath = "/mirror/audit"

// maxAuditBody limits the events of one request: kube-apiserver sends 400 at once by default.
const maxAuditBody = 64 << 20

// ServeHTTP takes the events that an audit webhook sends. The caller has authorized it.
func (f *Follower) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var list auditv1.EventList
	if r.Method != http.MethodPost {
		http.Error(w, "want a POST of an EventList of audit.k8s.io/v1", http.StatusMethodNotAllowed)
		return
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAuditBody)).Decode(&list); err != nil {
		http.Error(w, fmt.Sprintf("want an EventList of audit.k8s.io/v1: %v", err), http.StatusBadRequest)
		return
	}
	for i := range list.Items {
		f.authors.note(&list.Items[i])
	}
	w.WriteHeader(http.StatusOK)
}

// note takes an audit event. One that is not of a write that succeeded says nothing.
func (a *authors) note(e *auditv1.Event) {
	if e.Stage != auditv1.StageResponseComplete || e.ObjectRef == nil || e.ResponseStatus == nil || e.ResponseStatus.Code/100 != 2 {
		return
	}
	switch e.Verb {
	case "create", "update", "patch", "delete", deleteCollection:
	default:
		return
	}
	asked, err := url.Parse(e.RequestURI)
	if err != nil || asked.Query().Has("dryRun") {
		return
	}
	ref := e.ObjectRef
	r := &request{target: target{ref.APIGroup, ref.Resource, ref.Namespace, ref.Name}, verb: e.Verb}
	if ref.Resource == "events" {
		r.group = "" // where they are stored
	}
	if ref.Resource == "namespaces" && ref.Name != "" {
		r.namespace = ""
	}
	if e.ResponseObject != nil {
		var returned struct {
			Metadata struct {
				Name            string `json:"name"`
				ResourceVersion string `json:"resourceVersion"`
				UID             string `json:"uid"`
			} `json:"metadata"`
		}
		if json.Unmarshal(e.ResponseObject.Raw, &returned) == nil && ref.Subresource != "binding" {
			r.version, _ = strconv.ParseInt(returned.Metadata.ResourceVersion, 10, 64) // 0 if it is none
			r.uid = returned.Metadata.UID
			if r.name == "" {
				r.name = returned.Metadata.Name
			}
		}
	}
	r.author = sqlstore.Author{User: e.User.Username, AuditID: string(e.AuditID), FieldManager: asked.Query().Get("fieldManager")}
	if r.author.FieldManager == "" {
		r.author.FieldManager, _, _ = strings.Cut(e.UserAgent, "/")
	}
	if e.ImpersonatedUser != nil {
		r.author.ImpersonatedUser = e.ImpersonatedUser.Username
	}
	if ids := e.User.Extra[user.CredentialIDKey]; len(ids) > 0 {
		r.author.CredentialID = ids[0]
	}
	if len(e.SourceIPs) > 0 {
		r.author.Address = e.SourceIPs[0]
	}
	a.add(r)
}

// polling is how often a file is read that grows.
const polling = 200 * time.Millisecond

// followFile takes the events that are written to a file from now on, also after it was rotated, until ctx ends.
func (a *authors) followFile(ctx context.Context, path string, log *slog.Logger) {
	var t tail
	defer t.close()
	t.skip = true
	warned := ""
	for ctx.Err() == nil {
		err := t.read(path, func(line []byte) {
			var e auditv1.Event
			if json.Unmarshal(line, &e) == nil {
				a.note(&e)
			}
		})
		if err == nil {
			warned = ""
		} else if warned != err.Error() {
			warned = err.Error()
			log.Warn("reading the audit log failed; trying again", "file", path, "error", err)
		}
		sleep(ctx, polling)
	}
}

// tail reads the lines of a file that grows, and is replaced by an empty one from time to time.
type tail struct {
	skip bool // what is in the file when it is opened first
	file *os.File
	rest []byte // of an incomplete line
}

func (t *tail) close() {
	if t.file != nil {
		_ = t.file.Close() // it was only read
		t.file, t.rest = nil, nil
	}
}

// read calls yield with each line since the last read.
func (t *tail) read(path string, yield func([]byte)) error {
	if t.file == nil {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		t.file = file
		if t.skip {
			if _, err := file.Seek(0, io.SeekEnd); err != nil {
				return err
			}
		}
		t.skip = false
	}
	if err := t.lines(yield); err != nil {
		return err
	}
	now, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	open, failed := t.file.Stat()
	if failed != nil {
		return failed
	}
	at, failed := t.file.Seek(0, io.SeekCurrent)
	if failed != nil {
		return failed
	}
	if err != nil || !os.SameFile(now, open) || now.Size() < at { // it was renamed, removed or emptied
		if err := t.lines(yield); err != nil { // what was written until then
			return err
		}
		t.close()
	}
	return nil
}

func (t *tail) lines(yield func([]byte)) error {
	in := bufio.NewReader(t.file)
	for {
		text, err := in.ReadBytes('\n')
		t.rest = append(t.rest, text...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		yield(t.rest)
		t.rest = t.rest[:0]
	}
}
