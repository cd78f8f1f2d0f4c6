package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/agent"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/crd"
)

// addLooks adds the tools that show objects as every cluster has them.
func (s *agentServer) addLooks(server *mcp.Server) {
	addTool(s, server, "objects", "List objects as a table, as kubectl get does, or show one as YAML; as they are, or as they were at a moment.", readOnly, s.objects)
	addTool(s, server, "events", "List the newest Events, of a namespace or of an object, the newest first.", readOnly, s.events)
	addTool(s, server, "logs", "Show the end of a container's log.", readOnly, s.logs)
}

const (
	defaultRows = 100
	mostRows    = 500
)

func rowsOf(limit int) int { return min(cmp.Or(max(limit, 0), defaultRows), mostRows) }

type objectsInput struct {
	Resource      string `json:"resource" jsonschema:"the resource as for kubectl, such as pods, deploy or certificates.cert-manager.io"`
	Name          string `json:"name,omitempty" jsonschema:"show this object alone, as YAML"`
	Namespace     string `json:"namespace,omitempty" jsonschema:"the namespace; if unset, that of the context"`
	AllNamespaces bool   `json:"all_namespaces,omitempty" jsonschema:"list the objects of all namespaces"`
	Labels        string `json:"labels,omitempty" jsonschema:"a label selector, such as app=web"`
	Fields        string `json:"fields,omitempty" jsonschema:"a field selector, such as spec.nodeName=n1"`
	At            string `json:"at,omitempty" jsonschema:"show what was at this moment"`
	Limit         int    `json:"limit,omitempty" jsonschema:"how many rows, 100 by default, 500 at most"`
	Page          string `json:"page,omitempty" jsonschema:"the page token of the answer before"`
}

func (s *agentServer) objects(ctx context.Context, c *agentCall, in objectsInput) (*reply, error) {
	if in.Resource == "" {
		return nil, errors.New("want a resource")
	}
	if in.Name != "" {
		return c.object(ctx, in)
	}
	mapping, err := c.mapping(in.Resource)
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	namespace, err := c.scope(mapping, in.Namespace, in.AllNamespaces)
	if err != nil {
		return nil, err
	}
	at, err := c.revisionAt(ctx, "at", in.At, namespace)
	if err != nil {
		return nil, err
	}
	hidden := false
	if group := mapping.Resource.GroupResource(); !crd.BuiltIn(group) {
		found, err := c.hiddenIn(ctx, group, map[string]any{"apiVersion": mapping.GroupVersionKind.GroupVersion().String(), "kind": mapping.GroupVersionKind.Kind})
		if err != nil {
			return nil, err
		}
		hidden = found != nil
	}
	if in.Page != "" {
		at = 0 // the token has it
	}
	request := func() *rest.Request {
		r := c.read(mapping.Resource, namespace, at)
		for name, value := range map[string]string{"labelSelector": in.Labels, "fieldSelector": in.Fields} {
			if value != "" {
				r = r.Param(name, value)
			}
		}
		return r
	}
	show := tableOptions{namespaces: namespace == "" && mapping.Scope.Name() == meta.RESTScopeNameNamespace, plain: hidden}
	return rowsReply(ctx, request, in.Limit, in.Page, show)
}

// scope returns the namespace of a list, "" for all.
func (c *cluster) scope(mapping *meta.RESTMapping, namespace string, all bool) (string, error) {
	switch {
	case mapping.Scope.Name() == meta.RESTScopeNameRoot || all:
		return "", nil
	case namespace != "":
		return namespace, nil
	}
	own, _, err := c.loader.Namespace()
	return own, err
}

// object shows an object as YAML.
func (c *agentCall) object(ctx context.Context, in objectsInput) (*reply, error) {
	resource, namespace, name, err := c.cluster.object([]string{in.Resource, in.Name}, in.Namespace)
	if err != nil {
		return nil, err
	}
	at, err := c.revisionAt(ctx, "at", in.At, namespace)
	if err != nil {
		return nil, err
	}
	object, err := c.get(ctx, resource, "", namespace, name, at)
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	if object == nil {
		return nil, fmt.Errorf("there is no %s, as far as you may know", named{resource, namespace, name})
	}
	if err := c.hide(ctx, resource, object); err != nil {
		return nil, err
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields") // which have values of lists
	}
	text, err := terminal.YAML(object)
	if err != nil {
		return nil, err
	}
	return paged("", string(text), in.Page)
}

// tableOptions say how a Table is shown.
type tableOptions struct {
	namespaces bool
	wide       bool // with the columns that kubectl get -o wide adds
	plain      bool // only names and times, since other columns could have what is secret
}

// rowsReply asks for a page of a Table that is not too long for an answer.
func rowsReply(ctx context.Context, request func() *rest.Request, limit int, token string, show tableOptions) (*reply, error) {
	for rows := rowsOf(limit); ; rows = max(1, rows/2) {
		r := request().SetHeader("Accept", asTable).Param("limit", strconv.Itoa(rows))
		if token != "" {
			r = r.Param("continue", token)
		}
		text, err := answer(r.Do(ctx))
		if err != nil {
			return nil, terminal.OneLine(err)
		}
		var t metav1.Table
		if err := json.Unmarshal(text, &t); err != nil {
			return nil, err
		}
		shown, err := show.text(&t)
		if err != nil {
			return nil, err
		}
		if len(shown) <= agent.MostText || rows == 1 {
			note := ""
			if len(t.Rows) == 0 {
				note = "Nothing found, as far as you may know."
			}
			return &reply{note: note, data: shown, next: t.Continue}, nil
		}
	}
}

func (o tableOptions) text(t *metav1.Table) (string, error) {
	var columns []int
	var heads []string
	if o.namespaces {
		heads = append(heads, "NAMESPACE")
	}
	for i, c := range t.ColumnDefinitions {
		if (c.Priority == 0 || o.wide) && (!o.plain || c.Format == "name" || c.Name == "Age" && c.Type != "string") {
			columns, heads = append(columns, i), append(heads, strings.ToUpper(c.Name))
		}
	}
	if len(t.Rows) == 0 {
		return "", nil
	}
	var out strings.Builder
	printed := newTable(&out, heads...)
	for _, row := range t.Rows {
		var cells []string
		if o.namespaces {
			var object metav1.PartialObjectMetadata
			if err := json.Unmarshal(row.Object.Raw, &object); err != nil {
				return "", err
			}
			cells = append(cells, object.Namespace)
		}
		for _, i := range columns {
			if i < len(row.Cells) {
				cells = append(cells, fmt.Sprint(row.Cells[i]))
			}
		}
		printed.row(cells...)
	}
	err := printed.end()
	return out.String(), err
}

type eventsInput struct {
	Namespace     string `json:"namespace,omitempty" jsonschema:"the namespace; if unset, that of the context"`
	AllNamespaces bool   `json:"all_namespaces,omitempty" jsonschema:"the Events of all namespaces"`
	Kind          string `json:"kind,omitempty" jsonschema:"only Events about objects of this kind, such as Pod"`
	Name          string `json:"name,omitempty" jsonschema:"only Events about objects with this name"`
	Warnings      bool   `json:"warnings,omitempty" jsonschema:"only warnings"`
	At            string `json:"at,omitempty" jsonschema:"show what was at this moment"`
	Page          string `json:"page,omitempty" jsonschema:"the page token of the answer before"`
}

// mostEvents is how many Events are read for an answer.
const mostEvents = 5000

func (s *agentServer) events(ctx context.Context, c *agentCall, in eventsInput) (*reply, error) {
	mapping, err := c.mapping("events")
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	namespace, err := c.scope(mapping, in.Namespace, in.AllNamespaces)
	if err != nil {
		return nil, err
	}
	at, err := c.revisionAt(ctx, "at", in.At, namespace)
	if err != nil {
		return nil, err
	}
	var terms []fields.Selector
	for field, value := range map[string]string{"involvedObject.kind": in.Kind, "involvedObject.name": in.Name, "type": map[bool]string{true: corev1.EventTypeWarning}[in.Warnings]} {
		if value != "" {
			terms = append(terms, equals(field, value))
		}
	}
	var all []corev1.Event
	token := ""
	for {
		r := c.read(corev1.SchemeGroupVersion.WithResource("events"), namespace, at).SetHeader("Accept", asJSON).Param("limit", strconv.Itoa(mostRows))
		if token != "" {
			r = r.Param("continue", token)
		}
		text, err := answer(r.Param("fieldSelector", fields.AndSelectors(terms...).String()).Do(ctx))
		if err != nil {
			return nil, terminal.OneLine(err)
		}
		var page corev1.EventList
		if err := json.Unmarshal(text, &page); err != nil {
			return nil, err
		}
		all, at = append(all, page.Items...), 0 // the token has it
		if token = page.Continue; token == "" || len(all) >= mostEvents {
			break
		}
	}
	if len(all) == 0 {
		return &reply{note: "No Events found, as far as you may know."}, nil
	}
	note := ""
	if token != "" {
		note = fmt.Sprintf("There are more than %d Events: these are not all. Ask for a namespace or an object.", mostEvents)
	}
	text, err := eventsTable(all)
	if err != nil {
		return nil, err
	}
	return paged(note, text, in.Page)
}

func lastSeen(e *corev1.Event) metav1.Time {
	switch {
	case e.Series != nil:
		return metav1.Time(e.Series.LastObservedTime)
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp
	case !e.EventTime.IsZero():
		return metav1.Time(e.EventTime)
	}
	return e.CreationTimestamp
}

func eventsTable(all []corev1.Event) (string, error) {
	slices.SortStableFunc(all, func(a, b corev1.Event) int { return lastSeen(&b).Compare(lastSeen(&a).Time) })
	var out strings.Builder
	t := newTable(&out, "LAST SEEN", "TIMES", "TYPE", "REASON", "NAMESPACE", "OBJECT", "MESSAGE")
	for i := range all {
		e := &all[i]
		times := int(e.Count)
		if e.Series != nil {
			times = int(e.Series.Count)
		}
		t.row(lastSeen(e).UTC().Format(timeFormat), fmt.Sprint(max(times, 1)), e.Type, e.Reason, e.Namespace, e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name, strings.TrimSpace(e.Message))
	}
	err := t.end()
	return out.String(), err
}

type logsInput struct {
	Pod       string `json:"pod" jsonschema:"the name of the Pod"`
	Namespace string `json:"namespace,omitempty" jsonschema:"the namespace; if unset, that of the context"`
	Container string `json:"container,omitempty" jsonschema:"the container, if there are several"`
	Previous  bool   `json:"previous,omitempty" jsonschema:"the log of the container that ran before"`
	Lines     int    `json:"lines,omitempty" jsonschema:"how many of the last lines, 100 by default"`
	Since     int    `json:"since_seconds,omitempty" jsonschema:"only what is no older than so many seconds"`
}

// mostLog is how many bytes of a log are read.
const mostLog = 4 << 20

func (s *agentServer) logs(ctx context.Context, c *agentCall, in logsInput) (*reply, error) {
	if in.Pod == "" {
		return nil, errors.New("want a pod")
	}
	mapping, err := c.mapping("pods")
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	namespace, err := c.scope(mapping, in.Namespace, false)
	if err != nil {
		return nil, err
	}
	r := c.read(mapping.Resource, namespace, 0).Name(in.Pod).SubResource("log").
		Param("tailLines", strconv.Itoa(cmp.Or(max(in.Lines, 0), defaultRows))).Param("limitBytes", strconv.Itoa(mostLog)).Param("timestamps", "true")
	if in.Container != "" {
		r = r.Param("container", in.Container)
	}
	if in.Previous {
		r = r.Param("previous", "true")
	}
	if in.Since > 0 {
		r = r.Param("sinceSeconds", strconv.Itoa(in.Since))
	}
	text, err := answer(r.Do(ctx))
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	note := ""
	switch {
	case len(text) == 0:
		note = "The log has nothing, or nothing since then."
	case len(text) > agent.MostText:
		left := len(text) - agent.MostText
		text, note = text[left:], fmt.Sprintf("%d bytes before this are left out.", left)
	}
	return &reply{note: note, data: string(text)}, nil
}
