package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/agent"
)

// addHistory adds the tools that show what only a sqube server knows.
func (s *agentServer) addHistory(server *mcp.Server) {
	addTool(s, server, "changes", "List who changed what, and when, with the old and the new values. It needs a sqube server.", readOnly, s.changes)
	addTool(s, server, "blame", "Show an object as YAML, each line with the change that set its field: when, by whom, with which field manager. It needs a sqube server.", readOnly, s.blame)
	addTool(s, server, "diff", "Show how an object, a namespace or the cluster differs between two moments, as unified diffs. It needs a sqube server.", readOnly, s.diff)
}

type changesInput struct {
	Resource      string `json:"resource,omitempty" jsonschema:"with name: the changes of one object; its resource as for kubectl"`
	Name          string `json:"name,omitempty" jsonschema:"the name of that object"`
	Namespace     string `json:"namespace,omitempty" jsonschema:"the namespace; if unset, that of the context"`
	AllNamespaces bool   `json:"all_namespaces,omitempty" jsonschema:"the changes in all namespaces, and of objects that are in none"`
	Since         string `json:"since,omitempty" jsonschema:"only changes since this moment: a time, or how long ago"`
	Until         string `json:"until,omitempty" jsonschema:"only changes until this moment: a time, or how long ago"`
	User          string `json:"user,omitempty" jsonschema:"only what this user did"`
	Manager       string `json:"manager,omitempty" jsonschema:"only what was done with this field manager"`
	Kind          string `json:"kind,omitempty" jsonschema:"only changes of objects of this kind"`
	Operation     string `json:"operation,omitempty" jsonschema:"only create, update or delete"`
	Field         string `json:"field,omitempty" jsonschema:"only updates of this field or of one in it, such as .spec.replicas"`
	Transaction   string `json:"transaction,omitempty" jsonschema:"only what this transaction did"`
	OldestFirst   bool   `json:"oldest_first,omitempty" jsonschema:"list the oldest changes first; if unset, the newest"`
	Limit         int    `json:"limit,omitempty" jsonschema:"how many rows, 100 by default, 500 at most"`
	Page          string `json:"page,omitempty" jsonschema:"the page token of the answer before"`
}

func (s *agentServer) changes(ctx context.Context, c *agentCall, in changesInput) (*reply, error) {
	o := changesOptions{
		cluster: *c.cluster, namespace: in.Namespace, all: in.AllNamespaces, since: in.Since, until: in.Until, newest: !in.OldestFirst,
		selectors: map[string]*string{"user": &in.User, "fieldManager": &in.Manager, "kind": &in.Kind, "operation": &in.Operation, "transaction": &in.Transaction},
	}
	if in.Field != "" {
		o.paths = []string{in.Field}
	}
	args, err := arguments(in.Resource, in.Name)
	if err != nil {
		return nil, err
	}
	log, err := o.log(args)
	if err != nil {
		return nil, err
	}
	return rowsReply(ctx, func() *rest.Request { return log.request(asTable) }, in.Limit, in.Page, tableOptions{namespaces: log.namespace == "", wide: true})
}

// arguments returns those of a command that takes an object or none.
func arguments(resource, name string) ([]string, error) {
	switch {
	case resource == "" && name == "":
		return nil, nil
	case resource == "" || name == "":
		return nil, errors.New("want both resource and name, or none")
	}
	return []string{resource, name}, nil
}

type blameInput struct {
	Resource  string `json:"resource" jsonschema:"the resource as for kubectl"`
	Name      string `json:"name" jsonschema:"the name of the object"`
	Namespace string `json:"namespace,omitempty" jsonschema:"the namespace; if unset, that of the context"`
	At        string `json:"at,omitempty" jsonschema:"show the object as it was at this moment"`
	Page      string `json:"page,omitempty" jsonschema:"the page token of the answer before"`
}

func (s *agentServer) blame(ctx context.Context, c *agentCall, in blameInput) (*reply, error) {
	o := blameOptions{cluster: *c.cluster, namespace: in.Namespace, at: in.At}
	args, err := arguments(in.Resource, in.Name)
	if err != nil {
		return nil, err
	}
	var out agent.Text
	if err := o.write(ctx, args, &out, &out, 0); err != nil {
		return nil, err
	}
	return paged("", out.String(), in.Page)
}

type diffInput struct {
	From          string   `json:"from" jsonschema:"the first moment"`
	To            string   `json:"to,omitempty" jsonschema:"the second moment; if unset, now"`
	Resource      string   `json:"resource,omitempty" jsonschema:"with name: compare one object; its resource as for kubectl"`
	Name          string   `json:"name,omitempty" jsonschema:"the name of that object"`
	Namespace     string   `json:"namespace,omitempty" jsonschema:"the namespace; if unset, that of the context"`
	AllNamespaces bool     `json:"all_namespaces,omitempty" jsonschema:"compare all namespaces, and what is in none"`
	Resources     []string `json:"resources,omitempty" jsonschema:"compare only objects of these resources"`
	Status        bool     `json:"status,omitempty" jsonschema:"compare the status, too"`
	Page          string   `json:"page,omitempty" jsonschema:"the page token of the answer before"`
}

func (s *agentServer) diff(ctx context.Context, c *agentCall, in diffInput) (*reply, error) {
	if in.From == "" {
		return nil, errors.New("want from, the first moment")
	}
	o := diffOptions{cluster: *c.cluster, namespace: in.Namespace, all: in.AllNamespaces, from: in.From, to: in.To, resources: in.Resources, status: in.Status}
	args, err := arguments(in.Resource, in.Name)
	if err != nil {
		return nil, err
	}
	var out agent.Text
	switch err := o.write(ctx, args, &out, &out); {
	case err == nil:
		return &reply{note: "There are no differences.", data: out.String()}, nil
	case errors.Is(err, errDifferent):
		return paged("", out.String(), in.Page)
	default:
		return nil, fmt.Errorf("comparing: %w", err)
	}
}
